//! Whether more requests of a subject reached the upstream than the limit, by the upstream's own reading.

use crate::lists::Subject;
use crate::template::{Word, fill_text};
use crate::upstream::Record;

/// Whether the request is one of the subject's, by any reading.
pub(crate) fn is_of(subject: Subject, word: Word, record: &Record) -> bool {
    let filled = |template: &str| fill_text(template, word);
    let has = |readings: &[String], value: &str| readings.iter().any(|reading| reading == value);
    let contains = |text: &String| text.to_ascii_lowercase().contains(&word.text());
    match subject {
        Subject::Key => has(&record.keys, &filled("{key}")),
        Subject::Bearer => has(&record.bearers, &filled("{key}")),
        Subject::Credential => has(&record.credentials, &filled("{key}")),
        Subject::User => has(&record.users, &word.text()),
        Subject::Plan => has(&record.plans, &word.text()),
        Subject::Tenant => has(&record.tenants, &word.text()),
        Subject::HeaderNamed(name) => {
            let start = filled(name) + ":";
            let named = |line: &String| line.to_ascii_lowercase().starts_with(&start);
            record.headers.iter().any(named)
        }
        Subject::Host(host) => has(&record.hosts, &filled(host)),
        Subject::HostBelow(end) => {
            let end = filled(end);
            record.hosts.iter().any(|host| host.ends_with(&end))
        }
        Subject::Endpoint(path) => has(&record.routes, &filled(path)),
        Subject::EndpointBelow(start) => {
            let start = filled(start);
            let mut rest = record
                .routes
                .iter()
                .filter_map(|route| route.strip_prefix(&start));
            rest.any(|rest| !rest.is_empty())
        }
        Subject::Parameter(start) => {
            let start = filled(start);
            let mut rest = record
                .routes
                .iter()
                .filter_map(|route| route.strip_prefix(&start));
            rest.any(|rest| !rest.is_empty() && !rest.contains('/'))
        }
        Subject::Method(method, path) => {
            has(&record.methods, method) && has(&record.routes, &filled(path))
        }
        Subject::Address => has(&record.addresses, &word.address().to_string()),
        Subject::Source => has(&record.addresses, &word.source().to_string()),
        Subject::ClaimedAddress => {
            let address = word.address().to_string();
            let named = |reading: &String| reading.contains(&address);
            record.real_addresses.iter().any(named) || record.addresses.contains(&address)
        }
        Subject::Trailer => {
            let mut headers = record.headers.iter();
            record.trailers.iter().any(contains) || headers.any(contains)
        }
        Subject::Arrived => contains(&record.target),
    }
}
