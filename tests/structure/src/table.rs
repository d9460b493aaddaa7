//! Tables of Markdown pages.

/// The rows below a header, as the texts of their cells without backticks. The header is given as its line.
///
/// # Errors
/// The page has no such header, or the table has no rows.
pub fn rows(page: &str, header: &str) -> Result<Vec<Vec<String>>, String> {
    let mut lines = page.lines().skip_while(|line| line.trim() != header);
    if lines.next().is_none() {
        return Err(format!("the page has no table `{header}`"));
    }
    let rows: Vec<Vec<String>> = lines
        .skip(1)
        .map_while(|line| line.trim().strip_prefix('|')?.strip_suffix('|'))
        .map(|line| line.split('|').map(|cell| cell.replace('`', "").trim().to_owned()).collect())
        .collect();
    if rows.is_empty() { Err(format!("the table `{header}` has no rows")) } else { Ok(rows) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_follow_their_header() {
        let page = "| a | b |\n|---|---|\n| x | y |\n\n| c | d |\n|---|---|\n| `one/` | `two`, three |\n| 4 | |\n\nText.";
        let expected = [["one/", "two, three"], ["4", ""]];
        assert_eq!(rows(page, "| c | d |").unwrap(), expected);
    }

    #[test]
    fn missing_and_empty_tables_are_errors() {
        assert_eq!(rows("text", "| a |").unwrap_err(), "the page has no table `| a |`");
        assert_eq!(rows("| a |\n|---|\n\ntext", "| a |").unwrap_err(), "the table `| a |` has no rows");
    }
}
