//! `cases/NAME.html`: a small page for each case that fails, to be sent and linked to.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write;

use super::{failures, top};
use crate::engine::CaseResult;
use crate::report::{Report, escape};

/// More failures than this have no page of their own: that many have one cause, or a few.
pub(super) const MOST: usize = 1000;

/// What the pages begin with, so that those of an earlier run are known.
pub(crate) const MARK: &str = "<!-- a case of delegraph conformance -->\n";

/// The folder that the pages are in, beside `index.html`.
pub(crate) const FOLDER: &str = "cases";

/// Longer names are cut: file systems take 255 bytes.
const NAME: usize = 120;

/// The failing cases that have a page, and its file's name.
pub(super) struct Pages<'r> {
    list: Vec<(&'r CaseResult, String)>,
    of: HashMap<&'r str, usize>,
}

impl<'r> Pages<'r> {
    pub(super) fn of(report: &'r Report) -> Self {
        let mut pages = Pages { list: Vec::new(), of: HashMap::new() };
        let mut taken = HashSet::new();
        for result in failures::failing(report).into_iter().take(MOST) {
            let plain = |c: char| if c.is_ascii_alphanumeric() || "-_".contains(c) { c } else { '.' };
            let name: String = result.case.chars().take(NAME).map(plain).collect();
            let name = if name.starts_with('.') { format!("case{name}") } else { name };
            // Names may differ in what no file's name has, or in upper case only.
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

    /// Where the page of a case is, seen from `index.html`.
    pub(super) fn path(&self, case: &str) -> Option<String> {
        let (_, file) = self.list.get(*self.of.get(case)?)?;
        Some(format!("{FOLDER}/{file}"))
    }

    /// For each op, version and type the page of its first failure.
    pub(super) fn first(&self) -> BTreeMap<(&'r str, u32, &'r str), String> {
        let mut first = BTreeMap::new();
        for (result, file) in &self.list {
            let cell = (result.op.as_str(), result.version, result.ty.as_str());
            first.entry(cell).or_insert_with(|| format!("{FOLDER}/{file}"));
        }
        first
    }
}

/// Each page: the name of its file, and its text.
pub(crate) fn pages(report: &Report) -> Vec<(String, String)> {
    let pages = Pages::of(report);
    let page = |(i, (result, file)): (usize, &(&CaseResult, String))| {
        // The next one of the same op and type, which the matrix has in one cell.
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
    let (class, label) = failures::chip(result);
    let on = if report.device.is_empty() { String::new() } else { format!(" on {}", report.device) };
    let _ = write!(
        page,
        "<header>\n<h1>{}</h1>\n<p><span class=\"{class}\">{label}</span> <span class=\"soft\">{}</span></p>\n<p \
         class=\"soft\">{}</p>\n</header>\n<section class=\"case\">\n",
        failures::broken(&result.case),
        escape(result.detail.lines().next().unwrap_or_default()),
        escape(&format!("{}{on}", report.delegate))
    );
    failures::body(&mut page, report, result);
    page.push_str("</section>\n<nav><a href=\"../index.html\">all results</a>");
    if let Some((name, file)) = next {
        let _ = write!(page, "<a href=\"{file}\">next of its op and type: {}</a>", failures::broken(name));
    }
    page.push_str("</nav>\n</main>\n</body>\n</html>\n");
    page
}
