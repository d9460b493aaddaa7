//! Checks of data with which an op has no result, such as indices out of range.

use crate::binding::bindings;
use crate::kernel::{linear_dispatch, looped};
use crate::shape::{MAX_RANK, elements};
use crate::template::Template;
use crate::uniform::Uniform;
use crate::{Caps, Kernel, OtherSizes, Shader, ShaderError};

const NAME: &str = "check";
const WORKGROUP: u32 = 64;
/// Maximum number of workgroups, each of which reports one element.
const MAX_WORKGROUPS: u32 = 256;
/// As [`MAX_WORKGROUPS`], for a CPU.
const MAX_WORKGROUPS_SOFTWARE: u32 = 8;

/// The condition that the elements of a tensor must meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Signed integers: element `i` is at least the first and at most the second of `bounds[i % bounds.len()]`. One to
    /// six bounds are supported.
    Within(Vec<[i32; 2]>),
    /// Integers other than this one.
    Differs(i32),
    /// Floats other than 0 and -0.
    NotZero,
}

/// Finds elements that do not meet a condition.
///
/// The output has a pair of words per workgroup: one plus the position of the first such element in the workgroup's
/// range, and the element; a pair of zeros if there is none. The ranges of workgroups are ascending.
///
/// Bindings: `Input(0)` (the elements), `Output`, `Uniform`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Number of elements.
    pub elements: u32,
    /// The condition.
    pub condition: Condition,
}

impl Spec {
    /// Returns the number of workgroups, and the number of elements that an invocation checks.
    fn groups(&self, caps: &Caps) -> (u32, u32) {
        let most = if caps.software { MAX_WORKGROUPS_SOFTWARE } else { MAX_WORKGROUPS };
        let items = self.elements.div_ceil(WORKGROUP * most).max(1);
        (self.elements.div_ceil(WORKGROUP * items), items)
    }

    /// Returns the shape of the output.
    pub fn output(&self, caps: &Caps) -> [u32; 2] {
        [self.groups(caps).0, 2]
    }
}

impl Shader for Spec {
    /// # Errors
    /// Without elements, for no bounds or more than six, and for a tensor larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        elements(NAME, &[self.elements])?;
        // Floats are compared as words, since devices may treat subnormal numbers as 0.
        let (bounds, mask, other) = match &self.condition {
            Condition::Within(bounds) => (bounds.as_slice(), 0, 0),
            Condition::Differs(other) => (&[[0, 0]][..], u32::MAX, other.cast_unsigned()),
            Condition::NotZero => (&[[0, 0]][..], u32::MAX >> 1, 0),
        };
        if self.elements == 0 || bounds.is_empty() || bounds.len() > MAX_RANK {
            return Err(ShaderError::contradiction(NAME, self));
        }
        let (groups, items) = self.groups(caps);
        let template = Template::new(NAME, include_str!("wgsl/check.wgsl"))
            .number("WORKGROUP", WORKGROUP)
            .number("BOUNDS", u32::try_from(MAX_RANK).unwrap_or(u32::MAX))
            .flag("WITHIN", matches!(self.condition, Condition::Within(_)));
        let period = u32::try_from(bounds.len()).unwrap_or(u32::MAX);
        let uniform = Uniform::default().u32s([self.elements, items, period, mask, other, 0, 0, 0]);
        let padded = bounds.iter().chain(std::iter::repeat(&[0, 0])).take(MAX_RANK);
        let uniform = padded.fold(uniform, |uniform, [low, high]| uniform.i32s([*low, *high, 0, 0]));
        Ok(Kernel {
            variant: template.variant(NAME, bindings(1)),
            uniform: uniform.finish(),
            dispatch: linear_dispatch(NAME, caps, groups.into(), 1)?,
            iterations: looped(items, 0),
        })
    }

    fn other_sizes(&self, _: &Caps) -> OtherSizes {
        OtherSizes::SAME
    }
}
