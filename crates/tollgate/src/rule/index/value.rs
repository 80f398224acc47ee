//! By a plan or an attribute.

use super::{Finder, Table};
use crate::name::Name;
use crate::request::Request;
use crate::rule::matching::Match;

#[derive(Clone, Debug, Default)]
pub(super) struct ByValue {
    any: Vec<u32>,
    by_plan: Table<Vec<u32>>,
    by_attribute: Vec<(Name, Table<Vec<u32>>)>,
}

impl ByValue {
    /// By its attribute if it has one with values, as there may be the most of those; else by its plan.
    pub(super) fn add(&mut self, number: u32, when: &Match) {
        let mut attributes = when.attributes().iter();
        if let Some(attribute) = attributes.find(|attribute| !attribute.values.is_empty()) {
            let table = self.table(attribute.name);
            for value in &attribute.values {
                note(table, value, number);
            }
            return;
        }
        let mut has_plan = false;
        for plan in when.plan_names() {
            has_plan = true;
            note(&mut self.by_plan, plan, number);
        }
        if !has_plan {
            self.any.push(number);
        }
    }

    fn table(&mut self, name: Name) -> &mut Table<Vec<u32>> {
        let known = self
            .by_attribute
            .iter()
            .position(|(known, _)| *known == name);
        let (_, table) = match known {
            Some(i) => &mut self.by_attribute[i],
            None => self.by_attribute.push_mut((name, Table::default())),
        };
        table
    }

    pub(super) fn search<'a>(&'a self, request: &Request<'_>, finder: &mut impl Finder<'a>) {
        let mut found = |numbers: &[u32]| numbers.iter().for_each(|number| finder.find(*number));
        found(&self.any);
        if !self.by_plan.is_empty()
            && let Some(plan) = request.plan_name()
            && let Some(numbers) = self.by_plan.get(plan)
        {
            found(numbers);
        }
        for (name, table) in &self.by_attribute {
            if let Some(value) = request.attribute_value(*name)
                && let Some(numbers) = table.get(value)
            {
                found(numbers);
            }
        }
    }

    pub(super) fn most(&self) -> usize {
        let most = |table: &Table<Vec<u32>>| table.values().map(Vec::len).max().unwrap_or(0);
        let attributes = self.by_attribute.iter().map(|(_, table)| most(table));
        self.any.len() + most(&self.by_plan) + attributes.sum::<usize>()
    }
}

/// A value that was said twice counts once.
fn note(table: &mut Table<Vec<u32>>, value: &str, number: u32) {
    let numbers = table.entry(value.into()).or_default();
    if numbers.last() != Some(&number) {
        numbers.push(number);
    }
}
