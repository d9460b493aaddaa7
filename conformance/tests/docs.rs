//! The statements of `docs/conformance.md` hold.

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
    for name in Outcome::ALL.iter().map(|o| o.name()).chain(CHECKS.iter().copied()) {
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

/// The package contains copies of the embedded models, for cases that run outside of the repository.
#[test]
fn packaged_models_equal_those_of_the_repository() {
    let package = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    for file in std::fs::read_dir(package.join("models")).unwrap() {
        let file = file.unwrap();
        let original = package.join("../assets/digits").join(file.file_name());
        let same = std::fs::read(file.path()).unwrap() == std::fs::read(&original).unwrap();
        assert!(same, "{} differs", original.display());
    }
}
