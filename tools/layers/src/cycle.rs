//! Finds the cycles in a graph of modules.

use std::fmt::Write as _;

use crate::modules::Graph;

/// Cycles as text: for each use that is on one, the shortest that goes through it.
pub(super) fn find(graph: &Graph) -> Vec<String> {
    let mut found = Vec::new();
    for (module, used) in graph {
        for next in used.keys() {
            let Some(mut cycle) = shortest(graph, next, module) else {
                continue;
            };
            // One cycle is one, wherever it begins.
            let first = (0..cycle.len()).min_by_key(|&at| cycle.get(at));
            cycle.rotate_left(first.unwrap_or_default());
            if !found.contains(&cycle) {
                found.push(cycle);
            }
        }
    }
    found.iter().map(|cycle| shown(graph, cycle)).collect()
}

/// The shortest way from one module to another, with both.
fn shortest<'g>(graph: &'g Graph, start: &'g str, end: &str) -> Option<Vec<&'g str>> {
    let mut ways = vec![vec![start]];
    let mut seen = vec![start];
    while !ways.is_empty() {
        let mut longer = Vec::new();
        for way in ways {
            let Some(&last) = way.last() else { continue };
            if last == end {
                return Some(way);
            }
            for next in graph.get(last).into_iter().flat_map(|used| used.keys()) {
                if !seen.contains(&next.as_str()) {
                    seen.push(next);
                    longer.push([way.as_slice(), &[next.as_str()]].concat());
                }
            }
        }
        ways = longer;
    }
    None
}

fn shown(graph: &Graph, cycle: &[&str]) -> String {
    let mut text = "modules form a cycle:".to_owned();
    for (nth, module) in cycle.iter().enumerate() {
        let next = cycle
            .get(nth + 1)
            .or(cycle.first())
            .copied()
            .unwrap_or_default();
        let file = graph.get(*module).and_then(|used| used.get(next));
        let file = file.map_or_else(String::new, |file| file.display().to_string());
        let _ = write!(text, "\n  {module} uses {next} in {file}");
    }
    text
}
