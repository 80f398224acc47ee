//! By a plan or an attribute.

use smallvec::SmallVec;

use super::{Finder, Table};
use crate::name::Name;
use crate::request::Request;
use crate::rule::matching::Match;

#[derive(Clone, Debug, Default)]
pub(super) struct ByValue {
    any: SmallVec<[u32; 4]>,
    /// If some are for a few values.
    values: Option<Box<Values>>,
}

#[derive(Clone, Debug, Default)]
struct Values {
    by_plan: Table<Vec<u32>>,
    by_attribute: Vec<(Name, Table<Vec<u32>>)>,
}

impl ByValue {
    pub(super) fn add(&mut self, number: u32, when: &Match) {
        let mut attributes = when.attributes().iter();
        // By an attribute with values if there is one, because there may be many different ones; else by the plan.
        if let Some(attribute) = attributes.find(|attribute| !attribute.values.is_empty()) {
            let table = self.values.get_or_insert_default().table(attribute.name);
            for value in &attribute.values {
                note(table, value, number);
            }
            return;
        }
        let mut plans = when.plan_names().peekable();
        if plans.peek().is_none() {
            self.any.push(number);
            return;
        }
        let values = self.values.get_or_insert_default();
        plans.for_each(|plan| note(&mut values.by_plan, plan, number));
    }

    pub(super) fn search<'a>(&'a self, request: &Request<'_>, finder: &mut impl Finder<'a>) {
        self.any.iter().for_each(|number| finder.find(*number));
        if let Some(values) = &self.values {
            let numbers = values.search(request).flatten();
            numbers.for_each(|number| finder.find(*number));
        }
    }

    pub(super) fn most(&self) -> usize {
        self.any.len() + self.values.as_ref().map_or(0, |values| values.most())
    }
}

impl Values {
    fn table(&mut self, name: Name) -> &mut Table<Vec<u32>> {
        let known = (self.by_attribute.iter()).position(|(known, _)| *known == name);
        let (_, table) = match known {
            Some(i) => &mut self.by_attribute[i],
            None => self.by_attribute.push_mut((name, Table::default())),
        };
        table
    }

    fn search(&self, request: &Request<'_>) -> impl Iterator<Item = &Vec<u32>> {
        let plan = request.plan_name();
        let of_plan = plan.and_then(|plan| self.by_plan.get(plan));
        let of_attributes = self.by_attribute.iter().flat_map(|(name, table)| {
            let values = request.attribute_values(*name);
            values.filter_map(|value| table.get(value))
        });
        of_plan.into_iter().chain(of_attributes)
    }

    fn most(&self) -> usize {
        let attributes = self.by_attribute.iter().map(|(_, table)| by_several(table));
        let by_plan = self.by_plan.values().map(Vec::len).max().unwrap_or(0);
        by_plan + attributes.sum::<usize>()
    }
}

/// The largest number that can be found by as many values as conditions look at.
fn by_several(table: &Table<Vec<u32>>) -> usize {
    let mut counts: Vec<usize> = table.values().map(Vec::len).collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let by_values = counts.iter().take(Request::MAX_ATTRIBUTE_VALUES).sum();
    // The same may be found by several.
    let mut all: Vec<u32> = table.values().flatten().copied().collect();
    all.sort_unstable();
    all.dedup();
    all.len().min(by_values)
}

/// A value that is listed twice counts once.
fn note(table: &mut Table<Vec<u32>>, value: &str, number: u32) {
    let numbers = table.entry(value.into()).or_default();
    if numbers.last() != Some(&number) {
        numbers.push(number);
    }
}
