//! Finds the conditions that a request may meet, without looking at all of them.
//!
//! First by the path, in a tree of segments; those of one path by the host; those of one host by a plan or an attribute. Each step is one or
//! two look-ups in a table, however many rules there are. What is found may still fail by a method or a second attribute.

mod host;
mod value;

use std::collections::HashMap;

use foldhash::fast::RandomState;
use smallvec::SmallVec;

use super::matching::Match;
use crate::path::{Pattern, Segment, Segments};
use crate::request::Request;
use host::ByHost;

/// A table with text as its keys.
type Table<V> = HashMap<Box<str>, V, RandomState>;

/// Conditions by number.
#[derive(Clone, Debug, Default)]
pub(super) struct Index {
    anywhere: ByHost,
    tree: Node,
    has_paths: bool,
    /// Patterns at which something other than a rule's conditions changes.
    boundaries: Node,
    has_boundaries: bool,
}

/// A node in the tree of segments. Small, because with many rules memory accesses dominate.
#[derive(Clone, Debug, Default)]
struct Node {
    named: Option<Box<Table<Node>>>,
    one: Option<Box<Node>>,
    /// Patterns that end here.
    end: Option<Box<PatternEntries>>,
    /// Patterns that take all that follows.
    rest: Option<Box<PatternEntries>>,
}

/// A pattern, and the conditions that are behind it.
#[derive(Clone, Debug)]
struct PatternEntries {
    pattern: Box<str>,
    entries: ByHost,
}

/// What was found for a request.
pub(super) trait Finder<'a> {
    /// A condition that may be met.
    fn find(&mut self, number: u32);
    /// A pattern of the path, the most specific one first.
    fn route(&mut self, pattern: &'a str);
}

impl Index {
    /// Adds conditions under a number.
    pub(super) fn add(&mut self, number: u32, when: &Match) {
        let entries = match when.pattern() {
            None => &mut self.anywhere,
            Some(pattern) => self.entries_under(pattern),
        };
        entries.add(number, when);
    }

    /// Adds a pattern that only names what it matches.
    pub(super) fn add_route(&mut self, pattern: &Pattern) {
        self.entries_under(pattern);
    }

    /// Adds a pattern at which something else changes.
    pub(super) fn add_boundary(&mut self, pattern: &Pattern) {
        self.has_boundaries = true;
        self.boundaries.entries_under(pattern);
    }

    fn entries_under(&mut self, pattern: &Pattern) -> &mut ByHost {
        self.has_paths = true;
        self.tree.entries_under(pattern)
    }

    /// Whether it matters what the path of a request is.
    pub(super) fn looks_at_paths(&self) -> bool {
        self.has_paths || self.has_boundaries
    }

    /// The patterns that a path matches, identified by their addresses.
    pub(super) fn patterns<'s>(
        &self,
        segments: impl Iterator<Item = &'s str> + Clone,
        empty_is_one: bool,
    ) -> Patterns {
        let mut found = Patterns::new();
        let mut note = |under: &PatternEntries| found.push(std::ptr::from_ref(under).addr());
        self.tree
            .patterns(segments.clone(), empty_is_one, &mut note);
        self.boundaries.patterns(segments, empty_is_one, &mut note);
        found
    }

    pub(super) fn search<'a>(&'a self, request: &Request<'_>, finder: &mut impl Finder<'a>) {
        self.anywhere.search(request, finder);
        if self.has_paths
            && let Some(path) = request.path_view()
        {
            self.tree.search(path.segments(), request, finder);
        }
    }

    /// The largest number of conditions that one request can find.
    pub(super) fn most(&self) -> usize {
        self.anywhere.most() + self.tree.most()
    }
}

/// The addresses of the patterns that a path matches.
pub(super) type Patterns = SmallVec<[usize; 8]>;

impl Node {
    fn entries_under(&mut self, pattern: &Pattern) -> &mut ByHost {
        let mut node = self;
        for segment in pattern.segments() {
            node = match segment {
                Segment::Named(name) => {
                    let named = node.named.get_or_insert_default();
                    named.entry(name.clone()).or_default()
                }
                Segment::One => node.one.get_or_insert_default(),
            };
        }
        let under = match pattern.takes_rest() {
            true => &mut node.rest,
            false => &mut node.end,
        };
        let under = under.get_or_insert_with(|| {
            Box::new(PatternEntries {
                pattern: pattern.as_str().into(),
                entries: ByHost::default(),
            })
        });
        &mut under.entries
    }

    /// All patterns that fit these segments, always in the same order. Whether an empty segment is one for `{name}` differs between servers.
    fn patterns<'s>(
        &self,
        mut left: impl Iterator<Item = &'s str> + Clone,
        empty_is_one: bool,
        note: &mut impl FnMut(&PatternEntries),
    ) {
        match left.next() {
            None => self.end.iter().for_each(|under| note(under)),
            Some(segment) => {
                if let Some(named) = self.named.as_ref().and_then(|named| named.get(segment)) {
                    named.patterns(left.clone(), empty_is_one, note);
                }
                if let Some(one) =
                    (self.one.as_ref()).filter(|_| empty_is_one || !segment.is_empty())
                {
                    one.patterns(left, empty_is_one, note);
                }
            }
        }
        self.rest.iter().for_each(|under| note(under));
    }

    /// The more specific comes first: a name before `{name}`, and that before `{*rest}`.
    fn search<'a>(
        &'a self,
        mut left: Segments<'_>,
        request: &Request<'_>,
        finder: &mut impl Finder<'a>,
    ) {
        match left.next() {
            None => found(self.end.as_deref(), request, finder),
            Some(segment) => {
                if let Some(named) = self.named.as_ref().and_then(|named| named.get(segment)) {
                    named.search(left, request, finder);
                }
                if let Some(one) = &self.one {
                    one.search(left, request, finder);
                }
            }
        }
        found(self.rest.as_deref(), request, finder);
    }

    fn most(&self) -> usize {
        let most = |under: &Option<Box<PatternEntries>>| {
            under.as_ref().map_or(0, |under| under.entries.most())
        };
        let named = self.named.iter().flat_map(|named| named.values());
        let named = named.map(Self::most).max().unwrap_or(0);
        let one = self.one.as_ref().map_or(0, |one| one.most());
        // A path ends here or goes on.
        most(&self.rest) + most(&self.end).max(named + one)
    }
}

fn found<'a>(
    under: Option<&'a PatternEntries>,
    request: &Request<'_>,
    finder: &mut impl Finder<'a>,
) {
    if let Some(under) = under {
        finder.route(&under.pattern);
        under.entries.search(request, finder);
    }
}
