//! Secrets that others can read.

use std::net::IpAddr;

use crate::document::Problems;
use crate::draft::Draft;
use crate::encryption::Encryption;
use crate::store::StoreConfig;

const CLEAR: &str = "everybody who can read it has it, and so has every copy";

fn is_local(host: &str) -> bool {
    match host.parse::<IpAddr>() {
        Ok(ip) => ip.to_canonical().is_loopback(),
        Err(_) => host.is_empty() || host.eq_ignore_ascii_case("localhost"),
    }
}

pub(super) fn redis_password_without_tls(draft: &Draft, problems: &mut Problems) {
    let StoreConfig::Redis(redis) = &draft.store.store else {
        return;
    };
    let is_plain = matches!(
        redis.url.scheme(),
        "redis" | "redis+sentinel" | "redis+cluster"
    );
    let goes_out = redis.url.hosts().any(|host| !is_local(host));
    if is_plain && redis.url.has_password() && goes_out {
        problems
            .warning(
                draft.store.url_spot.clone(),
                "the password goes to another machine without TLS: everybody on the way can read it",
            )
            .help("use rediss:// if the server speaks TLS");
    }
}

pub(super) fn database_without_verified_tls(draft: &Draft, problems: &mut Problems) {
    let Some(database) = &draft.database else {
        return;
    };
    let url = database.url.expose();
    let weak = match Encryption::of(url).weakness() {
        Ok(None) => return,
        Ok(Some(weakness)) => weakness.to_string(),
        Err(unknown) => unknown,
    };
    let help = match Encryption::of_url(url).has_mode() {
        true => {
            "leave sslmode out (verify-full), with sslrootcert=FILE if an authority of your own issued the certificate"
        }
        false => "PGSSLMODE in the environment says so: unset it, or name an sslmode in the URL",
    };
    let spot = draft.spots.database.clone();
    problems.warning(spot, weak).help(help);
}

pub(super) fn token_in_clear(draft: &Draft, problems: &mut Problems) {
    let admin = draft.admin.as_ref().and_then(|admin| admin.token.as_ref());
    let service = (draft.service.as_ref()).and_then(|service| service.token.as_ref());
    let tokens = [
        (admin, &draft.spots.token, "TOLLGATE_ADMIN_TOKEN"),
        (
            service,
            &draft.spots.service_token,
            "TOLLGATE_SERVICE_TOKEN",
        ),
    ];
    for (token, spot, variable) in tokens {
        if token.is_some_and(crate::secret::Secret::is_in_clear) {
            problems
                .warning(
                    spot.clone(),
                    format!("the token stands in the file: {CLEAR}"),
                )
                .help(format!(
                    "put it into the environment: token: \"${{{variable}}}\""
                ));
        }
    }
}

pub(super) fn redis_password_in_clear(draft: &Draft, problems: &mut Problems) {
    if let StoreConfig::Redis(redis) = &draft.store.store
        && redis.url.has_password_in_clear()
    {
        problems
            .warning(
                draft.store.url_spot.clone(),
                format!("the password stands in the file: {CLEAR}"),
            )
            .help("put it into the environment: redis://user:${REDIS_PASSWORD}@host");
    }
}

pub(super) fn database_password_in_clear(draft: &Draft, problems: &mut Problems) {
    if let Some(database) = &draft.database
        && database.url.has_password_in_clear()
    {
        problems
            .warning(
                draft.spots.database.clone(),
                format!("the password stands in the file: {CLEAR}"),
            )
            .help(
                "put it into the environment: postgres://user:${DATABASE_PASSWORD}@host/database",
            );
    }
}
