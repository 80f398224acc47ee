//! All rules together, as one immutable whole.

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
use super::explanation::{Applicability, Explanation};
use super::index::{Finder, Index};
use super::matching::Match;
use super::warning::{self, RuleSetWarning};
use super::{Mode, Rule};
use crate::bucket::Bucket;
use crate::dimension::Dimension;
use crate::limit::Limit;
use crate::name::Name;
use crate::path::{ForwardedPath, Path, PathError, PathRules, Pattern};
use crate::request::Request;

#[cfg(debug_assertions)]
thread_local! {
    static MATCHED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// The largest number of tiers of one decision.
const MAX_TIERS: usize = 255;

/// Rules that are consistent with each other, and what they need to know about requests: costs, names of endpoints, how paths are
/// read.
///
/// Rules with the same id are one rule with a limit per plan: a request is counted by the one of its plan, or else by the one
/// without a plan. All ids that apply to a request apply together.
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
#[must_use = "rules limit nothing until a limiter has them"]
pub struct RuleSet {
    /// In the order in which the ids first appeared.
    families: Vec<Family>,
    /// Rules that are off, for explanations.
    off: Vec<Name>,
    costs: Vec<Cost>,
    routes: Vec<Pattern>,
    boundaries: Vec<Pattern>,
    paths: PathRules,
    /// The families by their positions, then the costs.
    index: Index,
    /// Whether every rule applies to every request, apart from plans.
    is_unconditional: bool,
    attribute_names: Vec<Name>,
    /// The values of attributes that conditions name.
    attribute_values: HashMap<Name, HashSet<Box<str>>>,
    counted_attributes: Vec<Name>,
    generation: u64,
}

/// The rules that apply to a request, with its cost and the name of its endpoint: the result of [`RuleSet::matching`].
///
/// [`Limiter::matched`](crate::Limiter::matched) decides by it, so that whoever keeps rules beside a limiter matches them once.
///
/// ```
/// use tollgate::{Dimension, LocalLimiter, Request, Rule, RuleSet};
///
/// let rules = RuleSet::new([Rule::new("client", "10/s burst 50".parse()?)?.per([Dimension::Client])])?;
/// let request = Request::new().client("merchant_123");
/// let matched = rules.matching(&request);
/// assert_eq!(matched.rules().len(), 1);
/// assert!(LocalLimiter::new().matched(&matched).decide().allowed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "matching rules charges nothing"]
pub struct MatchedRules<'a> {
    set: &'a RuleSet,
    /// With the route and the cost that the rules give it, if it has none of its own.
    request: Cow<'a, Request<'a>>,
    rules: SmallVec<[&'a Rule; 4]>,
    /// Replaces the rules' own limits.
    limit: Option<Box<Limit>>,
}

/// The same by reference.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MatchedView<'a> {
    pub(crate) set: &'a RuleSet,
    pub(crate) request: &'a Request<'a>,
    pub(crate) rules: &'a [&'a Rule],
    limit: Option<&'a Limit>,
}

impl<'a> MatchedView<'a> {
    /// The limit of one of these rules.
    #[inline(always)]
    pub(crate) fn limit_of(&self, rule: &'a Rule) -> &'a Limit {
        match self.limit {
            Some(limit) if !rule.dimensions().is_empty() => limit,
            _ => rule.limit(),
        }
    }

    #[inline(always)]
    pub(crate) fn generation(&self) -> u64 {
        self.set.generation
    }
}

impl<'a> MatchedRules<'a> {
    /// Keeps only these rules: for requests of which only some dimensions are known.
    pub fn only(mut self, keep: impl Fn(&Rule) -> bool) -> Self {
        self.rules.retain(|rule| keep(rule));
        self
    }

    /// Replaces the limits of the rules that count by something. A bucket for all requests keeps its limit, because others rely on
    /// it.
    ///
    /// ```
    /// use tollgate::{Dimension, LocalLimiter, Request, Rule, RuleSet};
    ///
    /// let rules = RuleSet::new([Rule::new("client", "10/s burst 50".parse()?)?.per([Dimension::Client])])?;
    /// let request = Request::new().client("merchant_123");
    /// let matched = rules.matching(&request).with_limit("1/h burst 2".parse()?);
    /// assert_eq!(LocalLimiter::new().matched(&matched).decide().limit(), Some(2));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_limit(mut self, limit: Limit) -> Self {
        self.limit = Some(Box::new(limit));
        self
    }

    /// The rules in order, each with the limit of the request's plan.
    #[inline]
    pub fn rules(&self) -> &[&'a Rule] {
        &self.rules
    }

    /// What the request costs, to rules that set no [cost of their own](Rule::cost).
    #[must_use]
    pub fn cost(&self) -> u64 {
        self.request.tokens()
    }

    /// The name of the endpoint, if it is known.
    #[must_use]
    pub fn route(&self) -> Option<&'a str> {
        self.request.route_name()
    }

    /// The client, if it is known.
    #[must_use]
    pub fn client(&self) -> Option<&'a str> {
        self.request.client_name()
    }

    /// The client's plan, if it has one.
    #[must_use]
    pub fn plan(&self) -> Option<&'a str> {
        self.request.plan_name()
    }

    /// The client's address, if it is known.
    #[must_use]
    pub fn ip(&self) -> Option<IpAddr> {
        self.request.address()
    }

    /// The method in upper case, if it is known.
    #[must_use]
    pub fn method(&self) -> Option<&str> {
        self.request.method_name()
    }

    /// The bucket of the request under one of these rules.
    #[must_use]
    pub fn bucket<'b>(&'b self, rule: &'b Rule) -> Bucket<'b> {
        rule.bucket(&self.request)
    }

    /// The generation of the rules.
    #[inline]
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.set.generation
    }

    #[inline(always)]
    pub(crate) fn view(&self) -> MatchedView<'_> {
        MatchedView {
            set: self.set,
            request: &self.request,
            rules: &self.rules,
            limit: self.limit.as_deref(),
        }
    }
}

impl RuleSet {
    /// Combines rules. Those that are off are left out.
    ///
    /// # Errors
    /// When two rules have the same id and plan, when rules of the same id have different dimensions, conditions or exceptions, or
    /// when more than 255 could apply to one request.
    pub fn new(rules: impl IntoIterator<Item = Rule>) -> Result<Self, RuleSetError> {
        let mut set = Self::default();
        let mut positions: HashMap<Name, usize> = HashMap::new();
        for rule in rules {
            if rule.mode == Mode::Off {
                set.off.push(rule.id);
                continue;
            }
            let position = *positions.entry(rule.id).or_insert(set.families.len());
            match set.families.get_mut(position) {
                Some(family) => family.add(rule)?,
                None => set.families.push(Family::of(rule)),
            }
        }
        set.build();
        match set.index.most() {
            most if most > MAX_TIERS => Err(RuleSetError::TooMany { most }),
            _ => Ok(set),
        }
    }

    /// Sets the costs of requests.
    pub fn with_costs(mut self, costs: impl IntoIterator<Item = Cost>) -> Self {
        self.costs = costs.into_iter().collect();
        self.build();
        self
    }

    /// Names endpoints that have no rule of their own, so that they are counted under these patterns.
    pub fn with_routes(mut self, routes: impl IntoIterator<Item = Pattern>) -> Self {
        self.routes = routes.into_iter().collect();
        self.build();
        self
    }

    /// Sets the patterns at which something other than a limit changes, such as the upstream. They name no endpoint; a path that
    /// servers may read on either side of one is [ambiguous](Self::read_path).
    pub fn with_boundaries(mut self, patterns: impl IntoIterator<Item = Pattern>) -> Self {
        self.boundaries = patterns.into_iter().collect();
        self.build();
        self
    }

    /// Sets how paths are read.
    pub fn with_paths(mut self, paths: PathRules) -> Self {
        self.paths = paths;
        self.build();
        self
    }

    /// Numbers the set. Decisions carry the number, and what one generation charged is not given back by another.
    pub fn with_generation(mut self, generation: u64) -> Self {
        self.generation = generation;
        self
    }

    /// The number of this set; 0 if it was given none.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// How paths are read.
    pub fn paths(&self) -> PathRules {
        self.paths
    }

    /// What is valid and probably a mistake, such as a rule for plans that leaves all other clients unlimited. For the log at the
    /// start, and for tools that check a configuration.
    #[must_use]
    pub fn warnings(&self) -> Vec<RuleSetWarning> {
        let mut warnings = Vec::new();
        for family in &self.families {
            warning::of_family(family, &mut warnings);
        }
        warnings
    }

    /// Reads the path of a request as it came, and makes sure that the same rules apply however a server reads what is forwarded of
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
    /// When it is uncertain what the path means, or which rules or exceptions apply to it.
    pub fn read_path<'a>(&self, raw: &'a str) -> Result<Path<'a>, PathError> {
        self.read_path_forwarded(raw, self.paths.forward)
    }

    /// Reads a path that is forwarded in this form, whatever [`PathRules::forward`] says: for the decision service, for example, where
    /// another gateway forwards what came.
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
            let expected = self.index.patterns(path.segments(), true);
            let is_same = readings.all(|segments| {
                let patterns = |empty_is_one| {
                    let segments = segments.iter().copied();
                    self.index.patterns(segments, empty_is_one)
                };
                let has_empty = segments.iter().any(|segment| segment.is_empty());
                patterns(true) == expected && (!has_empty || patterns(false) == expected)
            });
            if !is_same {
                return Err(PathError::Ambiguous);
            }
        }
        Ok(path)
    }

    /// The attributes that rules, exceptions and costs look at. A request needs no others.
    #[must_use]
    pub fn attribute_names(&self) -> &[Name] {
        &self.attribute_names
    }

    /// Whether a condition names this value of this attribute. To conditions, all other values are the same.
    #[must_use]
    pub fn names_value(&self, attribute: Name, value: &str) -> bool {
        let values = self.attribute_values.get(&attribute);
        values.is_some_and(|values| values.contains(value))
    }

    /// The attributes that rules count by: a request should have one value for each of these.
    #[must_use]
    pub fn counted_attributes(&self) -> &[Name] {
        &self.counted_attributes
    }

    /// All rules, grouped by id, without those that are off.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.families.iter().flat_map(Family::rules)
    }

    /// Explains which rules apply to this request, and why the others do not.
    #[must_use]
    pub fn explain<'a>(&'a self, request: &'a Request<'_>) -> Explanation<'a> {
        let found = self.find(request);
        let cost_by = found
            .cost
            .map(|(_, cost)| cost)
            .filter(|_| !request.has_cost());
        let mut rules: Vec<(Name, Applicability<'a>)> = (self.families.iter())
            .map(|family| (family.id(), family.applicability(request)))
            .collect();
        rules.extend(self.off.iter().map(|id| (*id, Applicability::Off)));
        Explanation {
            route: request.route_name().or(found.route),
            cost: cost_by.map_or(request.tokens(), Cost::tokens),
            cost_by,
            rules,
        }
    }

    /// Finds the rules that apply to this request.
    #[inline]
    pub fn matching<'a>(&'a self, request: &'a Request<'_>) -> MatchedRules<'a> {
        #[cfg(debug_assertions)]
        MATCHED.set(MATCHED.get() + 1);
        if self.is_unconditional {
            let rules = self.families.iter().filter_map(|f| f.rule_for(request));
            return MatchedRules {
                set: self,
                rules: rules.collect(),
                request: Cow::Borrowed(request),
                limit: None,
            };
        }
        self.matching_conditions(request)
    }

    /// How many requests this thread has matched: for tests that each is matched once.
    #[cfg(debug_assertions)]
    #[doc(hidden)]
    #[must_use]
    pub fn matched_on_this_thread() -> u64 {
        MATCHED.get()
    }

    fn matching_conditions<'a>(&'a self, request: &'a Request<'_>) -> MatchedRules<'a> {
        let mut found = self.find(request);
        found.families.sort_unstable();
        // Several values of an attribute may have found the same rule.
        found.families.dedup();
        let rules = (found.families.iter())
            .filter_map(|position| self.families[*position as usize].rule_for(request));
        let rules = rules.collect();
        let route = found.route.filter(|_| !request.has_route());
        let cost = found.cost.filter(|_| !request.has_cost());
        let mut request: Cow<'a, Request<'a>> = Cow::Borrowed(request);
        if let Some(route) = route {
            request = Cow::Owned(request.into_owned().route(route));
        }
        if let Some((_, cost)) = cost {
            request = Cow::Owned(request.into_owned().cost(cost.tokens()));
        }
        MatchedRules {
            set: self,
            request,
            rules,
            limit: None,
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

    /// Prepares all that is looked up per request.
    fn build(&mut self) {
        let ignores_case = self.paths.ignore_case;
        for family in &mut self.families {
            family.prepare(ignores_case);
        }
        let pattern = |pattern: &Pattern| match ignores_case {
            true => pattern.in_small_letters(),
            false => pattern.clone(),
        };
        let costs = self.costs.iter().map(Cost::conditions);
        let conditions: Vec<&Match> = (self.families.iter().map(Family::conditions))
            .chain(costs)
            .collect();
        let exceptions = || self.families.iter().flat_map(Family::exceptions);
        let mut index = Index::default();
        for (number, when) in (0..).zip(&conditions) {
            match ignores_case {
                true => index.add(number, &when.ignoring_case()),
                false => index.add(number, when),
            }
        }
        for route in &self.routes {
            index.add_route(&pattern(route));
        }
        for boundary in &self.boundaries {
            index.add_boundary(&pattern(boundary));
        }
        // At the edge of an exception a limit ends.
        for exception in exceptions().filter_map(Match::pattern) {
            index.add_boundary(exception);
        }
        let per = self.rules().flat_map(Rule::dimensions);
        let counted = per.filter_map(|dimension| match dimension {
            Dimension::Attribute(name) => Some(*name),
            _ => None,
        });
        let counted: Vec<Name> = counted.collect();
        let all = || conditions.iter().copied().chain(exceptions());
        let looked_at = all().flat_map(Match::attribute_names);
        let mut names: Vec<Name> = looked_at.chain(counted.iter().copied()).collect();
        names.sort_unstable();
        names.dedup();
        let mut values: HashMap<Name, HashSet<Box<str>>> = HashMap::new();
        for attribute in all().flat_map(Match::attributes) {
            let named = values.entry(attribute.name).or_default();
            named.extend(attribute.values.iter().cloned());
        }
        self.is_unconditional = self.routes.is_empty()
            && all().all(Match::is_everything)
            && exceptions().next().is_none()
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
        let position = number as usize;
        if let Some(family) = self.set.families.get(position) {
            if family.fits_beside_path(self.request) {
                self.families.push(number);
            }
            return;
        }
        let cost = &self.set.costs[position - self.set.families.len()];
        if cost.conditions().fits_beside_path(self.request) {
            // Of equally specific ones the first in the set, which need not be found first.
            let is_more_specific = |(known_number, known): (u32, &Cost)| {
                let known = known.conditions().specificity();
                match cost.conditions().specificity().cmp(&known) {
                    Ordering::Equal => number < known_number,
                    order => order.is_gt(),
                }
            };
            if self.cost.is_none_or(is_more_specific) {
                self.cost = Some((number, cost));
            }
        }
    }

    fn route(&mut self, pattern: &'a str) {
        self.route.get_or_insert(pattern);
    }
}
