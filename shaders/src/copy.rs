//! Strided copies: what slices, transposes, concatenations, tiles and the like come down to.

use crate::shape::{MAX_RANK, Nest};
use crate::template::Template;
use crate::walk::Walk;
use crate::{Binding, Caps, Features, Kernel, ShaderError};

/// A copy of 32-bit words: element `i` of the nest goes from `from + i·strides[0]` to `to + i·strides[1]`.
#[derive(Clone, Debug)]
pub(crate) struct Copy {
    /// The family that this copy serves.
    pub(crate) name: &'static str,
    /// The binding that is read.
    pub(crate) input: Binding,
    /// Extents, strides in the input and strides in the output.
    pub(crate) nest: Nest<2>,
    /// First element read.
    pub(crate) from: i64,
    /// First element written.
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
            return Err(ShaderError::unsupported(self.name, format!("a copy of {rank} dimensions")));
        }
        let walk = Walk::new(self.name, caps, &nest.extents)?;
        let (key, wgsl) = walk
            .apply(Template::new("copy", include_str!("wgsl/copy.wgsl")))
            .number("UNIFORM", 2)
            .flag("VEC4", vec4)
            .render()?;
        let fits = |n: &i64| i32::try_from(*n).is_ok();
        if ![from, to].iter().chain(nest.strides.iter().flatten()).all(fits) {
            return Err(ShaderError::unsupported(self.name, "a copy over more than 2^31 elements"));
        }
        let signed = |n: i64| i32::try_from(n).unwrap_or(0);
        let uniform = walk.uniform().i32(signed(from)).i32(signed(to));
        let uniform = walk.dimensions(uniform, |uniform, d| {
            uniform.i32s(nest.strides.iter().map(|strides| signed(strides.get(d).copied().unwrap_or(0))))
        });
        Ok(Kernel {
            name: self.name,
            key,
            wgsl,
            entry: "main",
            bindings: vec![self.input, Binding::Output, Binding::Uniform],
            uniform: uniform.finish(),
            dispatch: walk.dispatch(caps)?,
            features: Features::default(),
        })
    }
}

/// Strides as the nest wants them.
pub(crate) fn signed(strides: &[u32]) -> Vec<i64> {
    strides.iter().map(|s| i64::from(*s)).collect()
}
