use super::*;

#[test]
fn a_configuration_of_nothing_but_a_rule_is_one() {
    let config = parse("rules: [{ id: a, per: [], limit: \"1/s\" }]", &|_| None).unwrap();
    assert_eq!(config.policy.rules.rules().count(), 1);
}
