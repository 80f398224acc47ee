//! The payment case (examples/payments) in short: the program four times over one Redis, which is killed and comes back.

use std::time::Duration;

use payments::merchants::{ENTERPRISE, SANDBOX};
use payments::report::FLOOD;
use payments::{Phase, Setting};

#[test]
fn a_sandbox_cannot_hurt_an_enterprise_and_an_outage_stays_within_its_bound() {
    let setting = Setting {
        tollgate: env!("CARGO_BIN_EXE_tollgate").into(),
        phase: Duration::from_secs(2),
        batch_every: Duration::from_secs(2),
        // Known from the start, and patient: other tests keep this machine busy.
        store: "deadline: 1s, instances: 4",
    };
    let outcome = payments::run(&setting, |_| {});

    for finding in &outcome.findings {
        assert_eq!(finding.beyond_bound.tokens, 0, "{finding:?}");
    }
    // Half of what there is would be a sign of harm; what is missing to all of it is for busy machines.
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
    assert_eq!(deciders(Phase::Away).store, 0, "Redis is away");
    assert!(deciders(Phase::Away).fallback > 0);
    assert!(deciders(Phase::After).store > 0, "Redis is back");
}
