//! Secrets that others can read.

use super::Context;
use crate::document::Problems;
use crate::encryption::{Encryption, is_this_machine};
use crate::secret::{Secret, Url};
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

/// Warns of a secret in the file.
fn in_file(context: &Context<'_>, field: &str, secret: &str, help: &str, problems: &mut Problems) {
    let message =
        format!("the {secret} is in the file: everybody who can read it, or a copy of it, has it");
    let help = format!("put it into the environment: {help}");
    problems.warning(context.root.location_of(field), message, help);
}

pub(super) fn token_in_file(context: &Context<'_>, problems: &mut Problems) {
    let admin = context
        .config
        .admin
        .as_ref()
        .and_then(|admin| admin.token.as_ref());
    let service = (context.config.service.as_ref()).and_then(|service| service.token.as_ref());
    for (token, field, help) in [
        (admin, "admin.token", "token: \"${TOLLGATE_ADMIN_TOKEN}\""),
        (
            service,
            "service.token",
            "token: \"${TOLLGATE_SERVICE_TOKEN}\"",
        ),
    ] {
        if token.is_some_and(Secret::is_in_file) {
            in_file(context, field, "token", help, problems);
        }
    }
}

pub(super) fn password_in_file(context: &Context<'_>, problems: &mut Problems) {
    let redis = match &context.config.store {
        StoreConfig::Redis(redis) => Some(&redis.url),
        StoreConfig::Memory(_) => None,
    };
    let database = context
        .config
        .database
        .as_ref()
        .map(|database| &database.url);
    for (url, field, help) in [
        (redis, "store.redis", "redis://user:${REDIS_PASSWORD}@host"),
        (
            database,
            "database.url",
            "postgres://user:${DATABASE_PASSWORD}@host/database",
        ),
    ] {
        if url.is_some_and(Url::has_password_in_file) {
            in_file(context, field, "password", help, problems);
        }
    }
}
