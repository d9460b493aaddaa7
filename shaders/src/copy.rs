//! Strided copies, the kernel of slices, transposes, concatenations, tiles and similar ops.

use crate::shape::{MAX_RANK, NEST, Nest};
use crate::template::Template;
use crate::walk::{self, Walk};
use crate::{Binding, Caps, Kernel, OtherSizes, ShaderError, Variant};

/// Returns the thresholds of a copy. Its variant depends only on which extents are one, and on whether they are
/// multiples of four.
pub(crate) fn other_sizes() -> OtherSizes {
    OtherSizes::thresholds(&NEST)
}

/// A copy of 32-bit words: element `i` of the nest goes from `from + i·strides[0]` to `to + i·strides[1]`.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    /// The family that uses the copy.
    pub(crate) name: &'static str,
    /// The binding that is read.
    pub(crate) input: Binding,
    /// Extents, strides in the input and strides in the output.
    pub(crate) nest: Nest<2>,
    /// Index of the first element read.
    pub(crate) from: i64,
    /// Index of the first element written.
    pub(crate) to: i64,
}

impl Copy {
    pub(crate) fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let mut nest = self.nest.collapse();
        let (mut from, mut to) = (self.from, self.to);
        let whole = |strides: &Vec<i64>| strides.last() == Some(&1);
        let vec4 = from % 4 == 0 && to % 4 == 0 && nest.strides.iter().all(whole) && nest.split_vec4();
        if vec4 {
            (from, to) = (from / 4, to / 4);
        }
        let rank = nest.extents.len();
        if rank > MAX_RANK {
            return Err(ShaderError::unsupported(
                self.name,
                format!("a copy of {rank} dimensions; {MAX_RANK} are supported"),
            ));
        }
        let walk = Walk::new(self.name, caps, &nest.extents)?;
        let variant = variant(self.name, caps, self.input, rank, vec4);
        let fits = |n: &i64| i32::try_from(*n).is_ok();
        if ![from, to].iter().chain(nest.strides.iter().flatten()).all(fits) {
            return Err(ShaderError::unsupported(
                self.name,
                format!("offsets {from} and {to}, strides {:?}; 32-bit numbers are supported", nest.strides),
            ));
        }
        let signed = |n: i64| i32::try_from(n).unwrap_or(0);
        let uniform = walk.uniform().i32(signed(from)).i32(signed(to));
        let uniform = walk.dimensions(uniform, |uniform, d| {
            uniform.i32s(nest.strides.iter().map(|strides| signed(strides.get(d).copied().unwrap_or(0))))
        });
        let dispatch = walk.dispatch(caps)?;
        Ok(Kernel { variant, uniform: uniform.finish(), dispatch, iterations: 0 })
    }
}

/// Returns the variant of copies in `rank` dimensions.
pub(crate) fn variant(name: &'static str, caps: &Caps, input: Binding, rank: usize, vec4: bool) -> Variant {
    let template = Template::new("copy", include_str!("wgsl/copy.wgsl")).flag("VEC4", vec4);
    walk::apply(template, caps, rank).variant(name, [input, Binding::Output, Binding::Uniform])
}

/// Converts strides to those of a [`Nest`].
pub(crate) fn signed(strides: &[u32]) -> Vec<i64> {
    strides.iter().map(|s| i64::from(*s)).collect()
}
