//! Which bucket: the rule that counts, and the values it counts by.

use crate::dimension::{Dimension, Part};
use crate::name::Name;
use crate::request::Request;

/// The name of a bucket: a rule, and a value for each of its dimensions in the rule's order.
///
/// The first part is the *subject*: a store may keep all buckets of one subject together. A bucket without parts is for all
/// requests.
///
/// ```
/// use tollgate::{Dimension, Request, Rule, RuleSet};
///
/// let rules = RuleSet::new([Rule::new("per-route", "10/s".parse()?)?.per([Dimension::Client, Dimension::Route])])?;
/// let request = Request::new().client("merchant_123").route("/v1/charges");
/// let matched = rules.matching(&request);
/// let bucket = matched.bucket(matched.rules()[0]);
/// let parts: Vec<String> = bucket.parts().map(|part| part.dimension.to_string()).collect();
/// assert_eq!(parts, ["client", "route"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Bucket<'a> {
    rule: Name,
    per: &'a [Dimension],
    values: Values<'a>,
}

/// Where the values of the dimensions come from.
#[derive(Clone, Copy, Debug)]
enum Values<'a> {
    Key(&'a [u8]),
    Request(&'a Request<'a>),
}

impl<'a> Bucket<'a> {
    /// The bucket of a request under `rule`, which counts by `per`.
    #[must_use]
    pub fn new(rule: Name, per: &'a [Dimension], request: &'a Request<'a>) -> Self {
        Self {
            rule,
            per,
            values: Values::Request(request),
        }
    }

    /// The bucket of a key, which belongs to no rule.
    #[must_use]
    pub fn of_key(key: &'a [u8]) -> Self {
        Self {
            rule: Name::NONE,
            per: &[Dimension::Key],
            values: Values::Key(key),
        }
    }

    /// The rule; empty for a key.
    #[must_use]
    pub fn rule(&self) -> Name {
        self.rule
    }

    /// Whether this is the only bucket of its rule, for all requests.
    #[must_use]
    pub fn is_everybodys(&self) -> bool {
        self.per.is_empty()
    }

    /// A hash of the whole name, which cannot be foreseen without the secret.
    #[cfg(feature = "tokio")]
    pub(crate) fn keyed_hash(&self, secret: &std::hash::RandomState) -> u64 {
        use std::hash::{BuildHasher as _, Hash as _, Hasher as _};

        let mut hasher = secret.build_hasher();
        self.rule.hash(&mut hasher);
        for part in self.parts() {
            part.shape().hash(&mut hasher);
            hasher.write(part.value.unwrap_or_default());
        }
        hasher.finish()
    }

    /// The values, the subject first.
    #[inline(always)]
    pub fn parts(&self) -> impl Iterator<Item = Part<'a>> {
        let values = self.values;
        self.per.iter().map(move |dimension| Part {
            dimension: *dimension,
            value: match values {
                Values::Key(key) => Some(key),
                Values::Request(request) => request.value(*dimension),
            },
        })
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::HashSet;

    use super::*;

    /// Pieces that run into each other if they are joined without care.
    const PIECES: [&str; 16] = [
        "a", "b", "ab", "", ":", "{", "}", "%", "_", "a_b", "\0", "\n", "client", "ip:1", "#", "é",
    ];

    /// Passes this many buckets on, no two of which are the same: different rules, different dimensions, different values.
    pub(crate) fn different_buckets(count: usize, mut each: impl FnMut(&Bucket<'_>)) {
        let mut seen = HashSet::new();
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = move |below: usize| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            (usize::try_from(state >> 33).unwrap()) % below
        };
        let names: Vec<Name> = (0..40)
            .map(|i| Name::new(&format!("rule-{i}")).unwrap())
            .collect();
        let (x, y) = (Name::new("x").unwrap(), Name::new("x:y").unwrap());
        let dimensions = [
            Dimension::Client,
            Dimension::Attribute(x),
            Dimension::Attribute(y),
            Dimension::Route,
            Dimension::Method,
            Dimension::Plan,
        ];
        while seen.len() < count {
            let rule = names[next(names.len())];
            let mut per = vec![dimensions[next(3)]];
            per.extend((0..next(3)).map(|_| dimensions[next(6)]));
            // Most differ in the subject, as in practice; a few words follow it.
            let mut word = |pieces: usize| -> Option<String> {
                (next(9) > 0).then(|| (0..pieces).map(|_| PIECES[next(16)]).collect())
            };
            let values: [Option<String>; 6] =
                [word(6), word(6), word(6), word(1), word(1), word(1)];
            let mut request = Request::new();
            for (dimension, value) in dimensions.iter().zip(&values) {
                let Some(value) = value else { continue };
                request = match dimension {
                    Dimension::Client => request.client(value),
                    Dimension::Route => request.route(value),
                    Dimension::Method => request.method(value),
                    Dimension::Plan => request.plan(value),
                    Dimension::Attribute(name) => request.attribute(*name, value),
                    Dimension::Ip | Dimension::Key => request,
                };
            }
            let given: Vec<Option<String>> = (per.iter())
                .map(|dimension| dimensions.iter().position(|known| known == dimension))
                .map(|place| values[place.unwrap()].clone())
                .collect();
            if seen.insert((rule, per.clone(), given)) {
                each(&Bucket::new(rule, &per, &request));
            }
        }
    }
}
