//! The payment case (examples/payments) in short: four instances over one Redis, which is killed and restarted.

use std::time::Duration;

use payments::merchants::{ENTERPRISE, SANDBOX};
use payments::report::FLOOD;
use payments::{Phase, Setting};

use crate::kit::TOLLGATE;

#[test]
fn a_sandbox_flood_and_an_outage_stay_within_their_bounds() {
    let setting = Setting {
        tollgate: TOLLGATE.into(),
        phase: Duration::from_secs(2),
        batch_every: Duration::from_secs(2),
        // The number of instances is known from the start, and the deadline is long: other tests keep this machine busy.
        store: "deadline: 1s, instances: 4",
    };
    let outcome = payments::run(&setting, |_| {});

    for finding in &outcome.findings {
        assert_eq!(finding.beyond_bound.tokens, 0, "{finding:?}");
    }
    // About half would be a sign of harm. The tenth that may be missing is room for a busy machine.
    for phase in Phase::ALL {
        let share = outcome.admitted_share(ENTERPRISE, &[phase]);
        assert!(share > 0.9, "{phase:?}: {share}");
    }
    let flood = outcome.admitted_share(SANDBOX, &FLOOD);
    assert!(flood > 0.0 && flood < 0.5, "{flood}");

    let deciders = |wanted: Phase| {
        let of_phase = outcome.deciders.iter().find(|(phase, _)| *phase == wanted);
        of_phase.map(|(_, deciders)| *deciders).unwrap()
    };
    assert_eq!(deciders(Phase::Away).store, 0, "Redis is down");
    assert!(deciders(Phase::Away).fallback > 0);
    assert!(deciders(Phase::After).store > 0, "Redis is up again");
}
