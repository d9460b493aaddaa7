//! The page shows only tested code, and the whole delegate.

const PAGE: &str = include_str!("../../docs/write-a-delegate.md");
const SOURCES: [(&str, &str); 5] = [
    ("src/lib.rs", include_str!("dense/mod.rs")),
    ("src/kernel.rs", include_str!("dense/kernel.rs")),
    ("tests/layers.rs", include_str!("tests.rs")),
    ("pieces", include_str!("pieces.rs")),
    ("an application", include_str!("application.rs")),
];

/// The lines of each Rust block.
fn blocks() -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = PAGE.lines();
    while let Some(line) = lines.next() {
        if line == "```rust" {
            let block = lines.by_ref().take_while(|line| *line != "```");
            blocks.push(block.collect::<Vec<_>>().join("\n"));
        }
    }
    blocks
}

/// The page refers to the delegate's crate by its name.
fn as_shown(source: &str) -> String {
    source.replace("use crate::dense::DenseDelegate;", "use dense_delegate::DenseDelegate;")
}

#[test]
fn every_block_is_in_a_source() {
    let blocks = blocks();
    assert!(blocks.len() > 10, "{} blocks", blocks.len());
    for block in blocks {
        let found = SOURCES.iter().any(|(_, source)| as_shown(source).contains(&block));
        assert!(found, "the page shows what is not tested:\n{block}");
    }
}

/// The blocks of a file, in order, are the whole file.
#[test]
fn the_page_shows_the_whole_delegate() {
    let lines = |text: &str| -> Vec<String> {
        text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect()
    };
    for (file, source) in &SOURCES[..3] {
        let source = as_shown(source);
        let shown: Vec<String> = blocks().into_iter().filter(|block| source.contains(block)).collect();
        assert_eq!(lines(&shown.join("\n")), lines(&source), "{file}");
    }
}

#[test]
fn the_rules_are_those_of_the_crate() {
    let documentation = include_str!("../../delegate-api/src/lib.rs");
    let rules: Vec<&str> = documentation
        .lines()
        .filter_map(|line| line.strip_prefix("//! ").filter(|l| l.starts_with('|')))
        .collect();
    assert!(rules.len() > 5 && PAGE.contains(&rules.join("\n")), "{rules:#?}");
}
