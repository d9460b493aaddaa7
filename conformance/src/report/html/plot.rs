//! Small SVG pictures in the page.

use std::fmt::Write;

use delegraph_core::error::counted;
use delegraph_core::types::rounded;

use crate::engine::{BINS, ErrorStats};

const BAR: usize = 17;
const HEIGHT: usize = 52;

/// Returns a histogram of the differences. Heights are logarithmic, so that one wrong element of a million is visible.
pub(super) fn histogram(errors: &ErrorStats) -> String {
    let (width, bottom) = (BINS * BAR + 4, HEIGHT + 4);
    let most = errors.histogram.iter().copied().max().unwrap_or(0).max(1) as f64;
    let mut svg = format!(
        "<svg class=\"plot\" width=\"{width}\" height=\"{}\" viewBox=\"0 0 {width} {0}\" role=\"img\" \
         aria-label=\"{} of {} {} off\">",
        bottom + 14,
        errors.off,
        counted(errors.elements, "element"),
        if errors.elements == 1 { "is" } else { "are" }
    );
    let furthest = errors.histogram.iter().rposition(|n| *n > 0).unwrap_or(0);
    for (i, &count) in errors.histogram.iter().enumerate().take(BINS) {
        let x = 2 + i * BAR;
        let share = if count == 0 { 0.0 } else { (1.0 + count as f64).ln() / (1.0 + most).ln() };
        let height = (share * HEIGHT as f64).ceil() as usize;
        let colour = match i {
            0 => "var(--good)",
            _ if i == BINS - 1 || (errors.wrong > 0 && i == furthest) => "var(--bad)",
            _ => "var(--bar)",
        };
        let _ = write!(
            svg,
            "<rect x=\"{x}\" y=\"{}\" width=\"{}\" height=\"{height}\" rx=\"2\" fill=\"{colour}\"><title>{}: \
             {count}</title></rect>",
            bottom - height,
            BAR - 3,
            label(i, true)
        );
        let text = label(i, false);
        if !text.is_empty() {
            let middle = x + (BAR - 3) / 2;
            let _ = write!(
                svg,
                "<text x=\"{middle}\" y=\"{}\" text-anchor=\"middle\">{text}</text>",
                bottom + 11
            );
        }
    }
    let _ = write!(
        svg,
        "<line x1=\"0\" y1=\"{bottom}\" x2=\"{width}\" y2=\"{bottom}\" stroke=\"var(--line)\"/></svg>"
    );
    svg
}

/// Returns the label of a bin; the short form labels some bins only.
fn label(bin: usize, whole: bool) -> String {
    match bin {
        0 if whole => "equal".into(),
        0 => "=".into(),
        _ if bin == BINS - 1 => (if whole { "not finite" } else { "∞" }).into(),
        _ if whole && bin == BINS - 2 => "10 and more, of the largest magnitude".into(),
        _ if whole => format!("below {} of the largest magnitude", rounded(10f64.powi(bin as i32 - 10))),
        1 | 4 | 7 => format!("1e{}", bin as i32 - 10),
        10 => "1".into(),
        _ => String::new(),
    }
}

/// Returns a bar for a ratio, on a logarithmic scale from a hundredth to a hundred times.
pub(super) fn ratio(ratio: f64) -> String {
    let (width, middle) = (120.0, 60.0);
    let at = (middle + ratio.log10().clamp(-2.0, 2.0) * 28.0).clamp(2.0, width - 2.0);
    let (x, length) = (at.min(middle), (at - middle).abs().max(1.0));
    let colour = if ratio <= 1.0 { "var(--good)" } else { "var(--bar)" };
    format!(
        "<svg class=\"plot\" width=\"{width}\" height=\"12\" viewBox=\"0 0 {width} 12\" aria-hidden=\"true\"><rect \
         x=\"{x:.1}\" y=\"2\" width=\"{length:.1}\" height=\"8\" rx=\"2\" fill=\"{colour}\"/><line x1=\"{middle}\" \
         y1=\"0\" x2=\"{middle}\" y2=\"12\" stroke=\"var(--soft)\"/></svg>"
    )
}
