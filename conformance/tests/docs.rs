//! `docs/conformance.md` says what is so.

#![allow(clippy::unwrap_used)] // Only tests are here.

use delegraph_conformance::contract::CHECKS;
use delegraph_conformance::corpus::CaseFile;
use delegraph_conformance::engine::Outcome;
use delegraph_conformance::expectations::Expectations;

const PAGE: &str = include_str!("../../docs/conformance.md");

/// The code blocks of a language.
fn blocks(language: &str) -> Vec<&'static str> {
    let begin = format!("```{language}\n");
    PAGE.split(&begin).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

#[test]
fn its_files_are_understood() {
    let expectations: Vec<_> = blocks("toml").into_iter().filter(|b| b.contains("[[known]]")).collect();
    assert_eq!(expectations.len(), 1);
    Expectations::parse(expectations[0]).unwrap();
    let case: CaseFile = serde_json::from_str(blocks("json")[0]).unwrap();
    assert_eq!((case.signature.as_deref(), case.tolerance.unwrap().quantum), (Some("serve"), Some(1)));
}

#[test]
fn it_names_every_outcome_and_check() {
    for name in Outcome::ALL.iter().map(|o| o.name()).chain(CHECKS) {
        assert!(PAGE.contains(&format!("`{name}`")), "{name}");
    }
}

#[test]
fn it_does_not_promise_more_cases_than_there_are() {
    let promised = PAGE.split("More than ").nth(1).and_then(|rest| rest.split(' ').next()).unwrap();
    let promised: usize = promised.replace(',', "").parse().unwrap();
    let seed = delegraph_conformance::cases::DEFAULT_SEED;
    assert!(delegraph_conformance::cases::suite(seed).len() > promised);
}
