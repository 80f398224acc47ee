//! Keys in Redis: plain characters, one pair of braces, and different values under different keys.

#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use tollgate::store::{RedisConfig, RedisStore};
use tollgate::{Bucket, Dimension, Name, Request};

static STORE: LazyLock<RedisStore> =
    LazyLock::new(|| RedisStore::open("redis://127.0.0.1:1", RedisConfig::default()).expect("an address"));

fuzz_target!(|values: (&str, &str, &str, &str)| {
    let (one, behind_one, other, behind_other) = values;
    let rule = Name::new("rule").expect("a name");
    let device = Name::new("device").expect("a name");
    let key = |per: &[Dimension], client: &str, value: &str| {
        let request = Request::new().client(client).attribute(device, value);
        let key = STORE.key(&Bucket::new(rule, per, &request));
        assert!(key.chars().all(|c| c.is_ascii_graphic()) && key.len() < 300, "{key}");
        assert!(key.starts_with("tollgate:{") && key.matches(['{', '}']).count() == 2, "{key}");
        key
    };
    let client = [Dimension::Client];
    assert_eq!(key(&client, one, "") == key(&client, other, ""), one == other);
    let both = [Dimension::Client, Dimension::Attribute(device)];
    let is_same = (one, behind_one) == (other, behind_other);
    assert_eq!(key(&both, one, behind_one) == key(&both, other, behind_other), is_same);
    assert_ne!(key(&client, one, ""), key(&both, one, behind_one));
});
