//! What would become of a request, and why, for people and programs: the same of the command line and of the service. Charges nothing.

mod report;

use std::net::IpAddr;

use tollgate::MatchedRules;
use tollgate_tower::policy::{Head, Policy};

pub(crate) use report::{CallerReport, DecisionReport, Report, RequestReport, RuleReport, Usage};

/// A request that somebody asks about.
pub(crate) struct Asked<'a> {
    pub(crate) head: Head<'a>,
    pub(crate) peer: IpAddr,
    /// Whether nobody said where it comes from.
    pub(crate) peer_is_assumed: bool,
    /// Who asks, whatever the headers say.
    pub(crate) client: Option<&'a str>,
    pub(crate) cost: Option<u64>,
}

impl Asked<'_> {
    /// All there is to say about it. `usage` finds out what is used.
    pub(crate) async fn report(
        &self,
        policy: &Policy,
        usage: impl AsyncFnOnce(&MatchedRules<'_>) -> Usage,
    ) -> Report {
        let headers = self.head.headers;
        let who = (policy.identity()).explain(self.peer, headers, policy.clients());
        let mut report = Report::new(&self.head, policy.generation(), &who, self.peer_is_assumed);
        let view = match policy.view(&self.head, self.peer) {
            Ok(view) => view,
            Err(refusal) => {
                report.refuse(&refusal);
                return report;
            }
        };
        let client = self.client.map(|client| policy.client_name(client));
        let plan = client
            .as_deref()
            .and_then(|name| policy.clients().plan_of(name));
        let mut request = match &client {
            Some(name) => {
                report.name_client(name, plan);
                view.request_by(name, plan)
            }
            None => view.request(),
        };
        if let Some(cost) = self.cost {
            request = request.cost(cost);
        }
        let met = policy.rules().matching(&request);
        let explanation = policy.rules().explain(&request);
        let usage = usage(&met).await;
        report.fill(&view, &met, &explanation, &usage);
        report
    }
}
