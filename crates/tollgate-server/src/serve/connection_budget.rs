//! How many connections each listener may have: every connection needs a file descriptor, and the system limits those.
//!
//! The soft limit, 1,024 in most shells, is raised to the hard one at start. If even that is too low for the configuration, the
//! listeners accept fewer connections, so that there are always some left for upstreams, Redis, the database and files.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tollgate_config::{Config, ConnectionLimits};

/// Kept for everything that is not a connection of a client or to an upstream: Redis, the database, logs, certificates, sockets that
/// listen, and the runtime itself.
const RESERVED: usize = 128;

/// No listener gets fewer connections than this.
const MIN_CONNECTIONS: usize = 16;

/// Raises the soft limit to the hard one. Returns the limit in force; `None` if there is none.
fn raise_limit() -> Option<usize> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    // If that is not allowed, the program works with what it has.
    let is_raised = setrlimit(Resource::Nofile, raised).is_ok();
    let limit = if is_raised {
        limit.maximum
    } else {
        limit.current
    };
    limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX))
}

/// Maximum number of connections of each listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectionBudget {
    pub(super) gateway: usize,
    /// To all upstreams together.
    pub(super) upstreams: usize,
    pub(super) service: usize,
    pub(super) admin: usize,
}

impl ConnectionBudget {
    /// As many as are configured, or fewer if the system allows too few file descriptors.
    pub(super) fn within_limit(config: &Config) -> Self {
        let max = |limits: Option<ConnectionLimits>| limits.map_or(0, |it| it.max_connections);
        let gateway = config.gateway.as_ref();
        let upstreams = gateway.iter().flat_map(|gateway| &gateway.upstreams);
        let configured = Self {
            gateway: max(gateway.map(|gateway| gateway.front.connections)),
            upstreams: upstreams
                .map(|upstream| upstream.max_connections.saturating_mul(upstream.to.len()))
                .fold(0, usize::saturating_add),
            service: max(config.service.as_ref().map(|service| service.connections)),
            admin: max(config.admin.as_ref().map(|admin| admin.connections)),
        };
        let Some(limit) = raise_limit() else {
            return configured;
        };
        let fitted = configured.fitted_to(limit);
        if fitted != configured {
            tracing::warn!(
                limit,
                needed = configured.descriptors(),
                gateway_connections = fitted.gateway,
                service_connections = fitted.service,
                "the limit on file descriptors is too low for the configuration, so fewer connections are accepted; raise it \
                 (LimitNOFILE= in systemd, ulimit -n in a shell) or lower max_connections"
            );
        }
        fitted
    }

    /// The descriptors that all of these need. The gateway needs no more connections to upstreams than it has clients.
    fn descriptors(self) -> usize {
        let behind = self.upstreams.min(self.gateway);
        [self.gateway, behind, self.service, self.admin, RESERVED]
            .into_iter()
            .fold(0, usize::saturating_add)
    }

    /// Reduces them in proportion to what fits into this many descriptors. Of what the gateway gets, half is for upstreams.
    fn fitted_to(self, limit: usize) -> Self {
        let needed = self.descriptors();
        if needed <= limit {
            return self;
        }
        let wanted = (needed - RESERVED).max(1);
        // What every listener gets in any case, the gateway for upstreams as well.
        let listeners = [self.gateway, self.gateway, self.service, self.admin];
        let minimum = MIN_CONNECTIONS * listeners.iter().filter(|count| **count > 0).count();
        let available = limit.saturating_sub(RESERVED + minimum);
        let share = |count: usize| {
            let share = count as u128 * available as u128 / wanted as u128;
            usize::try_from(share).unwrap_or(usize::MAX)
        };
        let fitted = |count: usize| (share(count) + MIN_CONNECTIONS).min(count);
        let both = share(
            self.gateway
                .saturating_add(self.upstreams.min(self.gateway)),
        );
        let gateway = (both / 2).max(both.saturating_sub(self.upstreams));
        Self {
            gateway: (gateway + MIN_CONNECTIONS).min(self.gateway),
            upstreams: (both - gateway + MIN_CONNECTIONS).min(self.upstreams),
            service: fitted(self.service),
            admin: fitted(self.admin),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: ConnectionBudget = ConnectionBudget {
        gateway: 10_000,
        upstreams: 1_024,
        service: 10_000,
        admin: 256,
    };

    #[test]
    fn connections_that_fit_are_left_alone() {
        assert_eq!(WANTED.fitted_to(WANTED.descriptors()), WANTED);
        assert_eq!(WANTED.fitted_to(usize::MAX), WANTED);
    }

    #[test]
    fn fewer_descriptors_are_shared_and_leave_a_reserve() {
        for limit in (400..WANTED.descriptors()).step_by(97) {
            let fitted = WANTED.fitted_to(limit);
            assert!(fitted.descriptors() <= limit, "{limit}: {fitted:?}");
            assert!(fitted.gateway >= MIN_CONNECTIONS && fitted.service >= MIN_CONNECTIONS);
            // As many upstream connections as clients, or all that are configured.
            let behind = fitted.upstreams.min(fitted.gateway);
            assert!(
                behind == WANTED.upstreams || behind + 1 >= fitted.gateway,
                "{limit}: {fitted:?}"
            );
        }
    }

    #[test]
    fn however_few_there_are_every_listener_gets_some() {
        let fitted = WANTED.fitted_to(0);
        assert_eq!(
            (fitted.gateway, fitted.service, fitted.admin),
            (MIN_CONNECTIONS, MIN_CONNECTIONS, MIN_CONNECTIONS)
        );
        let no_service = ConnectionBudget {
            service: 0,
            ..WANTED
        };
        assert_eq!(no_service.fitted_to(300).service, 0);
    }
}
