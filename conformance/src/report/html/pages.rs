//! `cases/NAME.html`: a small page for each failed case, for sending and linking.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write;

use super::case::{body, broken, chip};
use super::top;
use crate::engine::CaseResult;
use crate::report::{Report, escape};

/// Maximum number of pages. More failures than this have one or a few causes.
pub(super) const MAX_PAGES: usize = 1000;

/// The beginning of each page, which identifies pages of an earlier run.
pub(crate) const MARK: &str = "<!-- a case of delegraph conformance -->\n";

/// The folder of the pages, next to `index.html`.
pub(crate) const FOLDER: &str = "cases";

/// Maximum length of a name; file systems allow 255 bytes.
const NAME: usize = 120;

/// The failing cases that have a page, with the names of their files.
pub(super) struct Pages<'r> {
    list: Vec<(&'r CaseResult, String)>,
    of: HashMap<&'r str, usize>,
}

impl<'r> Pages<'r> {
    pub(super) fn of(report: &'r Report) -> Self {
        let mut pages = Pages { list: Vec::new(), of: HashMap::new() };
        let mut taken = HashSet::new();
        for result in failing(report).into_iter().take(MAX_PAGES) {
            let plain = |c: char| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '.' };
            let name: String = result.case.chars().take(NAME).map(plain).collect();
            let name = if name.starts_with('.') { format!("case{name}") } else { name };
            // Names may differ only in characters that file names do not allow, or in case.
            let mut own = name.clone();
            for count in 2.. {
                if taken.insert(own.to_lowercase()) {
                    break;
                }
                own = format!("{name}-{count}");
            }
            pages.of.insert(&result.case, pages.list.len());
            pages.list.push((result, format!("{own}.html")));
        }
        pages
    }

    /// Returns the path of a case's page, relative to `index.html`.
    pub(super) fn path(&self, case: &str) -> Option<String> {
        let (_, file) = self.list.get(*self.of.get(case)?)?;
        Some(format!("{FOLDER}/{file}"))
    }

    /// Returns, for each op, version and type, the page of the first failure.
    pub(super) fn first(&self) -> BTreeMap<(&'r str, u32, &'r str), String> {
        let mut first = BTreeMap::new();
        for (result, file) in &self.list {
            let cell = (result.op.as_str(), result.version, result.ty.as_str());
            first.entry(cell).or_insert_with(|| format!("{FOLDER}/{file}"));
        }
        first
    }
}

/// Returns all failed cases; known failures come last.
pub(super) fn failing(report: &Report) -> Vec<&CaseResult> {
    let mut failing: Vec<&CaseResult> = report.results.iter().filter(|r| !r.outcome.is_fine()).collect();
    failing.sort_by_key(|r| r.known.is_some());
    failing
}

/// Returns the pages with the names of their files.
pub(crate) fn pages(report: &Report) -> Vec<(String, String)> {
    let pages = Pages::of(report);
    let page = |(i, (result, file)): (usize, &(&CaseResult, String))| {
        // The next case of the same op and type, which is in the same cell of the matrix.
        let same = |other: &&(&CaseResult, String)| {
            (&other.0.op, other.0.version, &other.0.ty) == (&result.op, result.version, &result.ty)
        };
        let next = pages.list.iter().skip(i + 1).find(same).map(|(r, file)| (r.case.as_str(), file.as_str()));
        (file.clone(), case(report, result, next))
    };
    pages.list.iter().enumerate().map(page).collect()
}

fn case(report: &Report, result: &CaseResult, next: Option<(&str, &str)>) -> String {
    let mut page = top(&result.case).replacen("<!doctype html>\n", &format!("<!doctype html>\n{MARK}"), 1);
    let (class, label) = chip(result);
    let on = if report.device.is_empty() { String::new() } else { format!(" on {}", report.device) };
    let _ = write!(
        page,
        "<header>\n<h1>{}</h1>\n<p><span class=\"{class}\">{label}</span> <span class=\"soft\">{}</span></p>\n<p \
         class=\"soft\">{}</p>\n</header>\n<section class=\"case\">\n",
        broken(&result.case),
        escape(result.detail.lines().next().unwrap_or_default()),
        escape(&format!("{}{on}", report.delegate))
    );
    body(&mut page, report, result);
    page.push_str("</section>\n<nav><a href=\"../index.html\">all results</a>");
    if let Some((name, file)) = next {
        let _ = write!(page, "<a href=\"{file}\">next of its op and type: {}</a>", broken(name));
    }
    page.push_str("</nav>\n</main>\n</body>\n</html>\n");
    page
}
