//! Messages of a delegate: a `printf` format with its arguments, passed by C's variadic calling convention.
//!
//! A variadic function cannot be written in stable Rust. On the platforms below, variadic arguments are passed like
//! those of a function with a fixed signature: whole numbers and pointers in one set of registers, floating-point
//! numbers in another, and the rest on the stack. A function that declares all of these registers and some of the stack
//! receives any arguments. On other platforms a message is only its format.

use std::ffi::{CStr, c_char};

use crate::abi;

/// `TfLiteContext::ReportError`.
pub(super) type ReportError = unsafe extern "C" fn(*mut abi::Context, *const c_char, ...);

/// Maximum number of bytes of a message, and of a text in it.
const MAX_BYTES: usize = 4096;

/// The arguments of a format.
pub(super) struct Arguments<'a> {
    whole: &'a [usize],
    floats: &'a [f64],
    /// Arguments of both kinds that do not fit the registers.
    stack: &'a [usize],
}

impl Arguments<'_> {
    fn next_on_stack(&mut self) -> Option<usize> {
        let (&first, rest) = self.stack.split_first()?;
        self.stack = rest;
        Some(first)
    }

    fn whole(&mut self) -> Option<usize> {
        match self.whole.split_first() {
            Some((&first, rest)) => {
                self.whole = rest;
                Some(first)
            }
            None => self.next_on_stack(),
        }
    }

    fn float(&mut self) -> Option<f64> {
        match self.floats.split_first() {
            Some((&first, rest)) => {
                self.floats = rest;
                Some(first)
            }
            None => self.next_on_stack().map(|bits| f64::from_bits(bits as u64)),
        }
    }
}

/// Returns the function that a context has for messages.
pub(super) fn function() -> ReportError {
    // SAFETY: only C calls it, with a format and its arguments; see above for why the signatures agree.
    unsafe { std::mem::transmute::<*const (), ReportError>(report as *const ()) }
}

/// Defines the function for a number of integer registers, without those of context and format.
macro_rules! report {
    ($($whole:ident)*) => {
        #[allow(clippy::too_many_arguments)] // One for each register.
        unsafe extern "C" fn report(
            context: *mut abi::Context,
            format: *const c_char,
            $($whole: usize,)*
            f0: f64, f1: f64, f2: f64, f3: f64, f4: f64, f5: f64, f6: f64, f7: f64,
            s0: usize, s1: usize, s2: usize, s3: usize, s4: usize, s5: usize, s6: usize, s7: usize,
        ) {
            let arguments = Arguments {
                whole: &[$($whole),*],
                floats: &[f0, f1, f2, f3, f4, f5, f6, f7],
                stack: &[s0, s1, s2, s3, s4, s5, s6, s7],
            };
            // SAFETY: the caller passes a format and its arguments.
            super::calls::report(context, unsafe { text(format, arguments) });
        }
    };
}

#[cfg(target_arch = "x86_64")]
report!(w0 w1 w2 w3);

#[cfg(all(target_arch = "aarch64", not(target_vendor = "apple")))]
report!(w0 w1 w2 w3 w4 w5);

#[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", not(target_vendor = "apple")))))]
unsafe extern "C" fn report(context: *mut abi::Context, format: *const c_char) {
    // SAFETY: the caller passes a format; it is not interpreted.
    super::calls::report(context, unsafe { crate::raw::text(format) });
}

/// Returns the text of a format and its arguments. Text after an unknown conversion is unchanged.
///
/// # Safety
/// `format` is null or ends with a zero byte, and so do the texts among its arguments.
#[cfg_attr(all(target_arch = "aarch64", target_vendor = "apple"), allow(dead_code))]
unsafe fn text(format: *const c_char, mut arguments: Arguments<'_>) -> String {
    if format.is_null() {
        return String::new();
    }
    // SAFETY: not null; it is terminated (guaranteed by the caller).
    let format = unsafe { CStr::from_ptr(format) }.to_string_lossy().into_owned();
    let (mut out, mut rest) = (String::new(), format.as_str());
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(before);
        let end = after.find(|c: char| !"-+ #0123456789.*hlzjtL".contains(c)).unwrap_or(after.len());
        let (flags, conversion) = after.split_at(end);
        let Some(kind) = conversion.chars().next() else {
            out.push('%');
            rest = after;
            break;
        };
        // SAFETY: guaranteed by the caller.
        let Some(value) = (unsafe { converted(flags, kind, &mut arguments) }) else {
            out.push('%');
            out.push_str(after);
            rest = "";
            break;
        };
        out.push_str(&value);
        rest = conversion.get(kind.len_utf8()..).unwrap_or_default();
        if out.len() > MAX_BYTES {
            break;
        }
    }
    out.push_str(rest);
    let end = (0..=out.len().min(MAX_BYTES)).rev().find(|&end| out.is_char_boundary(end));
    out.truncate(end.unwrap_or(0));
    out.trim_end().to_owned()
}

/// Returns the text of one conversion; `None` for an unknown conversion or a missing argument.
///
/// # Safety
/// As for [`text`].
unsafe fn converted(flags: &str, kind: char, arguments: &mut Arguments<'_>) -> Option<String> {
    if kind == '%' {
        return Some("%".into());
    }
    let (width, precision) = flags.split_once('.').map_or((flags, None), |(w, p)| (w, Some(p)));
    let mut number = |text: &str| match text.contains('*') {
        true => arguments.whole(),
        false => text.trim_matches(|c: char| !c.is_ascii_digit()).parse().ok(),
    };
    let width = number(width.trim_start_matches(['0', '-', '+', ' ', '#'])).unwrap_or(0).min(64);
    let precision = precision.map(|text| number(text).unwrap_or(0));
    let long = flags.contains(['l', 'z', 'j', 't']);
    let value = match kind {
        'd' | 'i' if long => (arguments.whole()? as isize).to_string(),
        'd' | 'i' => (arguments.whole()? as i32).to_string(),
        'u' if long => arguments.whole()?.to_string(),
        'u' => (arguments.whole()? as u32).to_string(),
        'x' | 'X' | 'o' => {
            let whole = arguments.whole()?;
            let whole = if long { whole } else { whole as u32 as usize };
            match kind {
                'x' => format!("{whole:x}"),
                'X' => format!("{whole:X}"),
                _ => format!("{whole:o}"),
            }
        }
        'p' => format!("{:#x}", arguments.whole()?),
        'c' => char::from(arguments.whole()? as u8).to_string(),
        'f' | 'F' | 'e' | 'E' | 'g' | 'G' if !flags.contains('L') => match (kind, arguments.float()?) {
            ('e' | 'E', value) => format!("{value:.*e}", precision.unwrap_or(6).min(40)),
            ('g' | 'G', value) => value.to_string(),
            (_, value) => format!("{value:.*}", precision.unwrap_or(6).min(40)),
        },
        's' => {
            let pointer = std::ptr::with_exposed_provenance::<u8>(arguments.whole()?);
            if pointer.is_null() {
                return Some("(null)".into());
            }
            let most = precision.unwrap_or(MAX_BYTES).min(MAX_BYTES);
            // SAFETY: bytes up to the precision or the zero are readable (guaranteed by the caller).
            let length = (0..most).find(|&i| unsafe { *pointer.add(i) } == 0).unwrap_or(most);
            // SAFETY: as above.
            String::from_utf8_lossy(unsafe { std::slice::from_raw_parts(pointer, length) }).into_owned()
        }
        _ => return None,
    };
    Some(if flags.starts_with('-') { format!("{value:<width$}") } else { format!("{value:>width$}") })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formatted(format: &CStr, whole: &[usize], floats: &[f64], stack: &[usize]) -> String {
        // SAFETY: the tests pass a text for each %s.
        unsafe { text(format.as_ptr(), Arguments { whole, floats, stack }) }
    }

    #[test]
    fn formats_take_their_arguments_from_registers_and_then_from_the_stack() {
        let name = c"conv".as_ptr().expose_provenance();
        let line = formatted(c"%s:%d %s was not true.\n", &[name, 17, name], &[], &[]);
        assert_eq!(line, "conv:17 conv was not true.");
        let line =
            formatted(c"%d %d|%5.2f|%g|%f", &[1, usize::MAX], &[1.5, 2.5], &[3.5_f64.to_bits() as usize]);
        assert_eq!(line, "1 -1| 1.50|2.5|3.500000");
        assert_eq!(formatted(c"%zu%% of %lld, %x %-4u.", &[5, 7], &[], &[255, 3]), "5% of 7, ff 3   .");
        assert_eq!(formatted(c"%.*s", &[2, name], &[], &[]), "co");
        assert_eq!(formatted(c"%s", &[0], &[], &[]), "(null)");
    }

    #[test]
    fn what_is_unknown_stays_as_it_is() {
        assert_eq!(formatted(c"a %n b %d", &[1], &[], &[]), "a %n b %d");
        assert_eq!(formatted(c"%d %d", &[1], &[], &[]), "1 %d");
        assert_eq!(formatted(c"100%", &[], &[], &[]), "100%");
        // SAFETY: null is allowed.
        let nothing = unsafe { text(std::ptr::null(), Arguments { whole: &[], floats: &[], stack: &[] }) };
        assert_eq!(nothing, "");
    }
}
