//! Finds a cycle in a graph of modules.

use std::fmt::Write as _;

use crate::modules::Graph;

/// The shortest cycle through the first module that is on one, as text.
pub(super) fn find(graph: &Graph) -> Option<String> {
    let mut cycles = graph.keys().filter_map(|start| shortest(graph, start));
    cycles.next().map(|cycle| shown(graph, &cycle))
}

/// The shortest way from a module back to itself.
fn shortest<'g>(graph: &'g Graph, start: &'g str) -> Option<Vec<&'g str>> {
    let mut ways = vec![vec![start]];
    let mut seen = vec![];
    while !ways.is_empty() {
        let mut longer = Vec::new();
        for way in ways {
            let Some(used) = way.last().and_then(|last| graph.get(*last)) else {
                continue;
            };
            for next in used.keys() {
                if next == start {
                    return Some(way);
                }
                if !seen.contains(next) {
                    seen.push(next.clone());
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
