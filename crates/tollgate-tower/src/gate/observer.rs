//! Whoever wants to hear of every decision of a layer: metrics, an audit trail.

use std::sync::Arc;

use tollgate::{Decision, MatchedRules};

/// Hears of every decision, on the request's own way: what it does must neither wait nor fail.
pub trait Observer: Send + Sync {
    /// Who met these rules was decided like this.
    fn decided(&self, met: &MatchedRules<'_>, decision: &Decision);

    /// A request was let into a queue and rejected all the same, as it could not wait for so long. What it took is given back.
    fn too_late(&self, decision: &Decision) {
        let _ = decision;
    }
}

impl<T: Observer + ?Sized> Observer for Arc<T> {
    fn decided(&self, met: &MatchedRules<'_>, decision: &Decision) {
        (**self).decided(met, decision);
    }

    fn too_late(&self, decision: &Decision) {
        (**self).too_late(decision);
    }
}
