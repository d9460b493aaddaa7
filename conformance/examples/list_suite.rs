//! Counts the cases of the suite by family, or lists those whose name contains a text: `list_suite [TEXT]`.

use std::collections::BTreeMap;

use delegraph_conformance::cases::{self, DEFAULT_SEED};

fn main() {
    let text = std::env::args().nth(1);
    let suite = cases::suite(DEFAULT_SEED);
    let mut counts = BTreeMap::<&str, (usize, usize)>::new();
    for case in &suite {
        match &text {
            Some(text) if case.name.contains(text) => println!("{}: {}", case.name, case.describe()),
            _ => {}
        }
        let count = counts.entry(case.family()).or_default();
        *(if case.is_listed() { &mut count.0 } else { &mut count.1 }) += 1;
    }
    if text.is_none() {
        for (family, (listed, generated)) in &counts {
            println!("{family}: {listed} listed, {generated} generated");
        }
        println!("{} cases", suite.len());
    }
}
