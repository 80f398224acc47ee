//! `tollgate check-config` and the files that a configuration names.

use rcgen::{CertificateParams, CertifiedKey, KeyPair, date_time_ymd, generate_simple_self_signed};

use tollgate_testing::Program;
use tollgate_testing::program::stderr;

use crate::kit::program;

const CONFIG: &str = "gateway:
  upstreams:
    - { to: \"http://127.0.0.1:1\" }
    - { path: /a, to: \"https://127.0.0.1:1\", ca: ca.pem }
  tls:
    cert: cert.pem
    key: key.pem
rules: [{ id: a, per: [], limit: 1/s }]
";

/// A folder with a certificate, its key, and a CA for upstreams.
fn prepared() -> Program {
    let program = program();
    program.write("tollgate.yaml", CONFIG);
    let CertifiedKey { cert, signing_key } = certified();
    program.write("cert.pem", &cert.pem());
    program.write("key.pem", &signing_key.serialize_pem());
    program.write("ca.pem", &cert.pem());
    program
}

fn certified() -> CertifiedKey<KeyPair> {
    generate_simple_self_signed(["localhost".to_owned()]).unwrap()
}

/// The exit code and stderr of `tollgate check-config`.
fn checked(program: &Program, args: &[&str]) -> (i32, String) {
    let args = [&["check-config"], args].concat();
    let output = program.run(&args);
    (output.status.code().unwrap(), stderr(&output))
}

#[test]
fn valid_certificates_are_accepted_silently() {
    assert_eq!(checked(&prepared(), &[]), (0, String::new()));
}

#[test]
fn missing_files_are_errors_unless_no_files_is_given() {
    let program = program();
    program.write("tollgate.yaml", CONFIG);
    let (code, error) = checked(&program, &[]);
    assert_eq!(code, 2, "{error}");
    for (field, place) in [
        ("gateway.upstreams[1].ca: ", "tollgate.yaml:4:"),
        ("gateway.tls.cert: ", "tollgate.yaml:6:11"),
        ("gateway.tls.key: ", "tollgate.yaml:7:10"),
    ] {
        assert!(error.contains(field) && error.contains(place), "{error}");
    }
    assert!(error.contains("--no-files"), "{error}");
    assert!(error.ends_with("tollgate.yaml has 3 errors\n"), "{error}");
    assert_eq!(checked(&program, &["--no-files"]), (0, String::new()));
}

#[test]
fn files_that_hold_something_else_are_errors_and_not_shown() {
    for (file, at, expected) in [
        ("cert.pem", "tollgate.yaml:6:11", "holds no certificate"),
        ("key.pem", "tollgate.yaml:7:10", "holds no private key"),
        ("ca.pem", "tollgate.yaml:4:", "holds no certificate"),
    ] {
        let program = prepared();
        program.write(file, "hunter2");
        let (code, error) = checked(&program, &[]);
        assert_eq!(code, 2, "{error}");
        assert!(error.contains(at) && error.contains(expected), "{error}");
        assert!(
            error.ends_with("has 1 error\n") && !error.contains("hunter2"),
            "{error}"
        );
    }
    let program = prepared();
    let broken = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n";
    program.write("cert.pem", broken);
    program.write("ca.pem", broken);
    let (code, error) = checked(&program, &[]);
    assert_eq!(code, 2, "{error}");
    assert!(error.ends_with("has 2 errors\n"), "{error}");
}

#[test]
fn a_key_of_another_certificate_is_an_error() {
    let program = prepared();
    program.write("key.pem", &certified().signing_key.serialize_pem());
    let (code, error) = checked(&program, &[]);
    assert_eq!(code, 2, "{error}");
    assert!(
        error.contains("is not that of the certificate in"),
        "{error}"
    );
    assert!(error.contains("tollgate.yaml:7:10"), "{error}");
}

#[test]
fn a_certificate_that_has_expired_is_a_warning() {
    let program = prepared();
    let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
    params.not_before = date_time_ymd(2019, 1, 1);
    params.not_after = date_time_ymd(2020, 2, 3);
    let key = KeyPair::generate().unwrap();
    program.write("cert.pem", &params.self_signed(&key).unwrap().pem());
    program.write("key.pem", &key.serialize_pem());
    let (code, error) = checked(&program, &[]);
    assert_eq!(code, 0, "{error}");
    assert!(
        error.contains(
            "warning: gateway.tls.cert: the certificate in \"cert.pem\" expired on 2020-02-03"
        ),
        "{error}"
    );
    assert_eq!(checked(&program, &["--strict"]).0, 2);
}

#[test]
fn the_body_file_of_denials_is_checked() {
    let program = program();
    let config = "service: {}\nanswers:\n  denied: { body_file: slow.txt }\nrules: [{ id: a, per: [], limit: 1/s }]\n";
    program.write("tollgate.yaml", config);
    let (code, error) = checked(&program, &[]);
    assert!(code == 2 && error.contains("tollgate.yaml:3:13"), "{error}");
    assert_eq!(checked(&program, &["--no-files"]), (0, String::new()));
    program.write("slow.txt", "line\n  {rul}");
    let (code, error) = checked(&program, &[]);
    assert_eq!(code, 2, "{error}");
    assert!(
        error.contains(
            "in \"slow.txt\" there is no placeholder {rul}, at line 2, column 3 of the body"
        ),
        "{error}"
    );
    assert!(error.contains("did you mean {rule}?"), "{error}");
    program.write("slow.txt", "{rule}");
    assert_eq!(checked(&program, &[]), (0, String::new()));
}
