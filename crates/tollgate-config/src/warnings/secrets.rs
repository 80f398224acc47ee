//! Secrets that others can read.

use super::Context;
use crate::document::Problems;
use crate::encryption::{Encryption, is_this_machine};
use crate::secret::Secret;
use crate::store::StoreConfig;

pub(super) fn redis_password_without_tls(context: &Context<'_>, problems: &mut Problems) {
    let StoreConfig::Redis(redis) = &context.config.store else {
        return;
    };
    let plain = ["redis", "redis+sentinel", "redis+cluster"];
    let is_remote = redis.url.hosts().any(|host| !is_this_machine(host));
    if plain.contains(&redis.url.scheme()) && redis.url.has_password() && is_remote {
        let message =
            "the password is sent to another machine without TLS: anybody on the way can read it";
        let help = "use rediss:// if the server supports TLS";
        problems.warning(context.root.location_of("store.redis"), message, help);
    }
}

pub(super) fn database_without_verified_tls(context: &Context<'_>, problems: &mut Problems) {
    let Some(database) = &context.config.database else {
        return;
    };
    let url = database.url.expose();
    let message = match Encryption::of(url).weakness() {
        Ok(None) => return,
        Ok(Some(weakness)) => weakness.to_owned(),
        Err(unknown_mode) => unknown_mode,
    };
    let help = match Encryption::of_url(url).has_mode() {
        true => {
            "remove sslmode (the default is verify-full), and add sslrootcert=FILE if the certificate is from an authority of your own"
        }
        false => "PGSSLMODE in the environment causes this: unset it, or set sslmode in the URL",
    };
    let location = context.root.location_of("database.url");
    problems.warning(location, message, help);
}

pub(super) fn secrets_in_file(context: &Context<'_>, problems: &mut Problems) {
    let config = context.config;
    let admin = config.admin.as_ref().and_then(|admin| admin.token.as_ref());
    let service = (config.service.as_ref()).and_then(|service| service.token.as_ref());
    let redis = match &config.store {
        StoreConfig::Redis(redis) => redis.url.has_password_in_file(),
        StoreConfig::Memory(_) => false,
    };
    let database = config.database.as_ref();
    let database = database.is_some_and(|database| database.url.has_password_in_file());
    for (is_in_file, field, kind, example) in [
        (
            admin.is_some_and(Secret::is_in_file),
            "admin.token",
            "token",
            "token: \"${TOLLGATE_ADMIN_TOKEN}\"",
        ),
        (
            service.is_some_and(Secret::is_in_file),
            "service.token",
            "token",
            "token: \"${TOLLGATE_SERVICE_TOKEN}\"",
        ),
        (
            redis,
            "store.redis",
            "password",
            "redis://user:${REDIS_PASSWORD}@host",
        ),
        (
            database,
            "database.url",
            "password",
            "postgres://user:${DATABASE_PASSWORD}@host/database",
        ),
    ] {
        if is_in_file {
            let message =
                format!("the {kind} is in the file: everybody who can read it, or a copy, has it");
            let help = format!("put it into the environment: {example}");
            problems.warning(context.root.location_of(field), message, help);
        }
    }
}
