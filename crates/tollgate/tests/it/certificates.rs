//! Certificates for servers and callers, made for the test.

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use tollgate::store::{RedisIdentity, RedisTls};

/// Somebody who vouches for servers and callers.
pub(crate) struct Authority {
    certificate: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// One of this name; two of the same name are taken for each other.
    pub(crate) fn new(name: &str) -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Not the name of those it vouches for, who would look as if they vouched for themselves.
        (params.distinguished_name).push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().pem();
        Self {
            certificate,
            issuer: Issuer::new(params, key),
        }
    }

    /// A certificate for a host of this name, or address.
    pub(crate) fn vouch_for(&self, host: &str) -> RedisIdentity {
        self.sign(&CertificateParams::new([host.to_owned()]).unwrap())
    }

    /// One that was good until yesteryear.
    pub(crate) fn vouched_for(&self, host: &str) -> RedisIdentity {
        let mut params = CertificateParams::new([host.to_owned()]).unwrap();
        params.not_before = date_time_ymd(2020, 1, 1);
        params.not_after = date_time_ymd(2021, 1, 1);
        self.sign(&params)
    }

    fn sign(&self, params: &CertificateParams) -> RedisIdentity {
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        RedisIdentity::new(certificate.pem(), key.serialize_pem())
    }

    /// What a caller has to know who believes nobody else.
    pub(crate) fn believed(&self) -> RedisTls {
        RedisTls::default().ca(self.certificate.clone())
    }

    /// Files in this folder for a server to show, as its configuration names them.
    pub(crate) fn write(&self, folder: &Path, shown: &RedisIdentity) {
        let write = |name: &str, pem: &str| std::fs::write(folder.join(name), pem).unwrap();
        write("ca.pem", &self.certificate);
        write("certificate.pem", &shown.certificate);
        write("key.pem", &shown.key);
    }

    /// The same as the library takes them.
    pub(crate) fn client(&self, url: &str) -> redis::Client {
        let certificates = redis::TlsCertificates {
            client_tls: None,
            root_cert: Some(self.certificate.clone().into_bytes()),
        };
        redis::Client::build_with_tls(url, certificates).unwrap()
    }
}
