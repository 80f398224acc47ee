//! All rules, checked together.

mod error;
mod family;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

use smallvec::SmallVec;

pub use error::RuleSetError;
pub(crate) use family::Family;

use super::cost::Cost;
use super::explanation::{Explanation, Standing};
use super::index::{Finder, Index};
use super::matching::Match;
use super::{Mode, Rule};
use crate::bucket::Bucket;
use crate::dimension::Dimension;
use crate::limit::Limit;
use crate::name::Name;
use crate::path::{ForwardedPath, Path, PathError, PathRules, Pattern};
use crate::request::Request;

/// The most tiers of one request.
const MOST_TIERS: usize = 255;

/// Rules that fit together, and what they need to know of requests: costs, names of endpoints, how paths are read.
///
/// Rules of one id are one rule with figures per plan: a request meets the one of its plan, or else the one without
/// a plan. Every id that applies, applies.
///
/// ```
/// use tollgate::{Cost, Dimension, Match, Rule, RuleSet};
///
/// let rules = RuleSet::new([
///     Rule::new("client", "10/s burst 50".parse()?)?.per([Dimension::Client]),
///     Rule::new("charges", "600 per 1m sliding_counter".parse()?)?
///         .when(Match::new().methods(["POST"])?.path("/v1/charges/{*rest}".parse()?))
///         .per([Dimension::Client, Dimension::Route]),
/// ])?
/// .with_costs([Cost::new(Match::new().path("/reports/{id}".parse()?), 10)]);
/// # let _ = rules;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct RuleSet {
    /// In the order in which the ids were first said.
    families: Vec<Family>,
    /// Left out, and still worth a word to whoever asks.
    off: Vec<Name>,
    costs: Vec<Cost>,
    routes: Vec<Pattern>,
    boundaries: Vec<Pattern>,
    paths: PathRules,
    /// The families by their places, then the costs.
    index: Index,
    /// Whether every request meets every family, as far as their conditions go.
    is_unconditional: bool,
    attribute_names: Vec<Name>,
    /// The values of attributes that conditions name.
    attribute_values: HashMap<Name, HashSet<Box<str>>>,
    counted_attributes: Vec<Name>,
    generation: u64,
}

/// What a request meets: rules, and with them its buckets, its cost and the name of its endpoint.
///
/// ```
/// use tollgate::{Dimension, LocalLimiter, Request, Rule, RuleSet};
///
/// let rules = RuleSet::new([Rule::new("client", "10/s burst 50".parse()?)?.per([Dimension::Client])])?;
/// let request = Request::new().client("merchant_123");
/// let met = rules.meet(&request);
/// assert!(LocalLimiter::new().decide_on(&met).allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Met<'a> {
    /// With the route and the cost that the rules say, if it says none itself.
    request: Cow<'a, Request<'a>>,
    rules: SmallVec<[&'a Rule; 4]>,
    /// What holds in place of the rules' own limits, if somebody said so.
    limit: Option<Box<Limit>>,
    generation: u64,
}

impl<'a> Met<'a> {
    /// Without the rules that are not to count: for who tells only a part of what rules may ask for.
    #[must_use]
    pub fn only(mut self, counts: impl Fn(&Rule) -> bool) -> Self {
        self.rules.retain(|rule| counts(rule));
        self
    }

    /// With this limit in place of those of the rules that count for somebody. What is everybody's keeps its own, as others rely on it.
    ///
    /// ```
    /// use tollgate::{Dimension, LocalLimiter, Request, Rule, RuleSet};
    ///
    /// let rules = RuleSet::new([Rule::new("client", "10/s burst 50".parse()?)?.per([Dimension::Client])])?;
    /// let request = Request::new().client("merchant_123");
    /// let met = rules.meet(&request).with_limit("1/h burst 2".parse()?);
    /// assert_eq!(LocalLimiter::new().decide_on(&met).limit(), Some(2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn with_limit(mut self, limit: Limit) -> Self {
        self.limit = Some(Box::new(limit));
        self
    }

    /// What one of these rules allows.
    #[inline]
    pub(crate) fn limit_of<'r>(&'r self, rule: &'r Rule) -> &'r Limit {
        match &self.limit {
            Some(limit) if !rule.dimensions().is_empty() => limit,
            _ => rule.limit(),
        }
    }

    /// The rules, in their order, each with the figures of the request's plan.
    #[inline]
    #[must_use]
    pub fn rules(&self) -> &[&'a Rule] {
        &self.rules
    }

    /// What the request costs.
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.request.tokens()
    }

    /// What its endpoint is called, if that is known.
    #[must_use]
    pub fn route(&self) -> Option<&'a str> {
        self.request.route_name()
    }

    /// Who asks, if that is known.
    #[must_use]
    pub fn client(&self) -> Option<&'a str> {
        self.request.client_name()
    }

    /// By which plan, if there is one.
    #[must_use]
    pub fn plan(&self) -> Option<&'a str> {
        self.request.plan_name()
    }

    /// From where, if that is known.
    #[must_use]
    pub fn ip(&self) -> Option<IpAddr> {
        self.request.address()
    }

    /// What is to be done, in capitals, if that is known.
    #[must_use]
    pub fn method(&self) -> Option<&str> {
        self.request.method_name()
    }

    /// The bucket that the request meets under one of these rules.
    #[must_use]
    pub fn bucket<'b>(&'b self, rule: &'b Rule) -> Bucket<'b> {
        rule.bucket(&self.request)
    }

    /// Which generation of the rules this is.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    #[inline]
    pub(crate) fn request(&self) -> &Request<'a> {
        &self.request
    }
}

impl RuleSet {
    /// Checks the rules against each other. Rules that are off are left out.
    ///
    /// # Errors
    /// When two have the same id and plan, or the same id and different dimensions or conditions, or one request could meet more
    /// than 255.
    pub fn new(rules: impl IntoIterator<Item = Rule>) -> Result<Self, RuleSetError> {
        let mut set = Self::default();
        let mut places: HashMap<Name, usize> = HashMap::new();
        for rule in rules {
            if rule.mode == Mode::Off {
                set.off.push(rule.id);
                continue;
            }
            let place = *places.entry(rule.id).or_insert(set.families.len());
            match set.families.get_mut(place) {
                Some(family) => family.add(rule)?,
                None => set.families.push(Family::of(rule)),
            }
        }
        set.build();
        match set.index.most() {
            most if most > MOST_TIERS => Err(RuleSetError::TooMany { most }),
            _ => Ok(set),
        }
    }

    /// What requests cost.
    #[must_use]
    pub fn with_costs(mut self, costs: impl IntoIterator<Item = Cost>) -> Self {
        self.costs = costs.into_iter().collect();
        self.build();
        self
    }

    /// Endpoints that have no rule of their own, so that they have names to be counted by.
    #[must_use]
    pub fn with_routes(mut self, routes: impl IntoIterator<Item = Pattern>) -> Self {
        self.routes = routes.into_iter().collect();
        self.build();
        self
    }

    /// Patterns at which something other than a limit changes, such as the upstream. They name no endpoint; paths that servers may
    /// read on either side of one are [ambiguous](Self::read_path).
    #[must_use]
    pub fn with_boundaries(mut self, patterns: impl IntoIterator<Item = Pattern>) -> Self {
        self.boundaries = patterns.into_iter().collect();
        self.build();
        self
    }

    /// How paths are read.
    #[must_use]
    pub fn with_paths(mut self, paths: PathRules) -> Self {
        self.paths = paths;
        self.build();
        self
    }

    /// Numbers the set, so that a decision says which one it was.
    #[must_use]
    pub fn with_generation(mut self, generation: u64) -> Self {
        self.generation = generation;
        self
    }

    /// The number of this set; 0 if it was given none.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// How to read the paths of requests that this set will see.
    #[must_use]
    pub fn paths(&self) -> PathRules {
        self.paths
    }

    /// Reads the path of a request as it came, and makes sure that it meets the same rules however a server reads what is forwarded of
    /// it: with escapes decoded or not, doubled slashes merged or not, dot segments resolved or not, parameters cut off or not.
    ///
    /// ```
    /// use tollgate::{Match, Rule, RuleSet};
    ///
    /// let files = Match::new().path("/files/{*key}".parse()?);
    /// let rules = RuleSet::new([Rule::new("files", "10/s".parse()?)?.when(files)])?;
    /// // However it is read, it is one of the files.
    /// assert_eq!(rules.read_path("/files/a//b%2B")?.as_str(), "/files/a/b+");
    /// // A server that does not resolve dots would serve a file.
    /// assert!(rules.read_path("/files/../admin").is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// When it cannot be said for sure what the path means, or which rules it meets.
    pub fn read_path<'a>(&self, raw: &'a str) -> Result<Path<'a>, PathError> {
        self.read_path_forwarded(raw, self.paths.forward)
    }

    /// The same for a path that is forwarded in this form, whatever [`PathRules::forward`] says: by a gateway that only asks, for
    /// example, and forwards what came.
    ///
    /// # Errors
    /// As [`read_path`](Self::read_path).
    pub fn read_path_forwarded<'a>(
        &self,
        raw: &'a str,
        forward: ForwardedPath,
    ) -> Result<Path<'a>, PathError> {
        let path = self.paths.normalise(raw)?;
        if self.index.looks_at_paths()
            && let Some(readings) = self.paths.readings(raw, &path, forward)
        {
            let met = self.index.patterns(path.segments(), true);
            let is_same = readings.all(|segments| {
                let patterns = |empty_is_one| {
                    let segments = segments.iter().copied();
                    self.index.patterns(segments, empty_is_one)
                };
                let has_empty = segments.iter().any(|segment| segment.is_empty());
                patterns(true) == met && (!has_empty || patterns(false) == met)
            });
            if !is_same {
                return Err(PathError::Ambiguous);
            }
        }
        Ok(path)
    }

    /// All that the rules and costs look at beside client, address, plan, method, host and path. A request needs to say no others.
    #[must_use]
    pub fn attribute_names(&self) -> &[Name] {
        &self.attribute_names
    }

    /// Whether a condition of a rule or a cost names this value of this attribute. No other value makes a difference to conditions.
    #[must_use]
    pub fn names_value(&self, attribute: Name, value: &str) -> bool {
        let values = self.attribute_values.get(&attribute);
        values.is_some_and(|values| values.contains(value))
    }

    /// Those of them that rules count by: a request should say each of these once.
    #[must_use]
    pub fn counted_attributes(&self) -> &[Name] {
        &self.counted_attributes
    }

    /// All rules, those of one id together, without those that are off.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.families.iter().flat_map(Family::rules)
    }

    /// Which rules this request meets, and why it does not meet the others.
    #[must_use]
    pub fn explain<'a>(&'a self, request: &'a Request<'_>) -> Explanation<'a> {
        let found = self.find(request);
        let cost_by = found
            .cost
            .map(|(_, cost)| cost)
            .filter(|_| !request.says_cost());
        let mut rules: Vec<(Name, Standing<'a>)> = (self.families.iter())
            .map(|family| (family.id(), family.standing(request)))
            .collect();
        rules.extend(self.off.iter().map(|id| (*id, Standing::Off)));
        Explanation {
            route: request.route_name().or(found.route),
            cost: cost_by.map_or(request.tokens(), Cost::tokens),
            cost_by,
            rules,
        }
    }

    /// What this request meets.
    #[inline]
    #[must_use]
    pub fn meet<'a>(&'a self, request: &'a Request<'_>) -> Met<'a> {
        if self.is_unconditional {
            let rules = self.families.iter().filter_map(|f| f.figures(request));
            return Met {
                rules: rules.collect(),
                request: Cow::Borrowed(request),
                limit: None,
                generation: self.generation,
            };
        }
        self.meet_some(request)
    }

    fn meet_some<'a>(&'a self, request: &'a Request<'_>) -> Met<'a> {
        let mut found = self.find(request);
        found.families.sort_unstable();
        // Of several values, each may have found the same.
        found.families.dedup();
        let rules = (found.families.iter())
            .filter_map(|place| self.families[*place as usize].figures(request));
        let rules = rules.collect();
        let mut request: Cow<'a, Request<'a>> = Cow::Borrowed(request);
        if let Some(route) = found.route
            && !request.says_route()
        {
            request = Cow::Owned(request.into_owned().route(route));
        }
        if let Some((_, cost)) = found.cost
            && !request.says_cost()
        {
            request = Cow::Owned(request.into_owned().cost(cost.tokens()));
        }
        Met {
            request,
            rules,
            limit: None,
            generation: self.generation,
        }
    }

    fn find<'a, 'r>(&'a self, request: &'r Request<'r>) -> Found<'a, 'r> {
        let mut found = Found {
            set: self,
            request,
            families: SmallVec::new(),
            route: None,
            cost: None,
        };
        self.index.search(request, &mut found);
        found
    }

    pub(crate) fn families(&self) -> &[Family] {
        &self.families
    }

    /// Puts everything where it is found.
    fn build(&mut self) {
        let ignores_case = self.paths.ignore_case;
        for family in &mut self.families {
            family.ignore_case(ignores_case);
        }
        let costs = self.costs.iter().map(Cost::conditions);
        let all: Vec<&Match> = (self.families.iter().map(Family::conditions))
            .chain(costs)
            .collect();
        let mut index = Index::default();
        for (number, when) in (0..).zip(&all) {
            match ignores_case {
                true => index.add(number, &when.ignoring_case()),
                false => index.add(number, when),
            }
        }
        for route in &self.routes {
            match ignores_case {
                true => index.add_route(&route.in_small_letters()),
                false => index.add_route(route),
            }
        }
        for boundary in &self.boundaries {
            match ignores_case {
                true => index.add_boundary(&boundary.in_small_letters()),
                false => index.add_boundary(boundary),
            }
        }
        let per = self.rules().flat_map(Rule::dimensions);
        let counted = per.filter_map(|dimension| match dimension {
            Dimension::Attribute(name) => Some(*name),
            _ => None,
        });
        let counted: Vec<Name> = counted.collect();
        let looked_at = all.iter().flat_map(|when| when.attribute_names());
        let mut names: Vec<Name> = looked_at.chain(counted.iter().copied()).collect();
        names.sort_unstable();
        names.dedup();
        let mut values: HashMap<Name, HashSet<Box<str>>> = HashMap::new();
        for attribute in all.iter().flat_map(|when| when.attributes()) {
            let named = values.entry(attribute.name).or_default();
            named.extend(attribute.values.iter().cloned());
        }
        self.is_unconditional = self.routes.is_empty()
            && all.iter().all(|when| when.is_everything())
            && self.costs.is_empty();
        self.attribute_names = names;
        self.attribute_values = values;
        self.counted_attributes = counted;
        self.index = index;
    }
}

/// What is found for a request.
struct Found<'a, 'r> {
    set: &'a RuleSet,
    request: &'r Request<'r>,
    families: SmallVec<[u32; 8]>,
    route: Option<&'a str>,
    cost: Option<(u32, &'a Cost)>,
}

impl<'a> Finder<'a> for Found<'a, '_> {
    fn find(&mut self, number: u32) {
        let place = number as usize;
        if let Some(family) = self.set.families.get(place) {
            if family.fits_beside_path(self.request) {
                self.families.push(number);
            }
            return;
        }
        let cost = &self.set.costs[place - self.set.families.len()];
        if cost.conditions().fits_beside_path(self.request) {
            // Of equal ones the first said, which need not be found first.
            let says_more = |(known_number, known): (u32, &Cost)| {
                let known_says = known.conditions().specificity();
                match cost.conditions().specificity().cmp(&known_says) {
                    Ordering::Equal => number < known_number,
                    says => says.is_gt(),
                }
            };
            if self.cost.is_none_or(says_more) {
                self.cost = Some((number, cost));
            }
        }
    }

    fn route(&mut self, pattern: &'a str) {
        self.route.get_or_insert(pattern);
    }
}
