//! Strided copies: what slices, transposes, concatenations, tiles and the like come down to.

use crate::kernel::linear_dispatch;
use crate::shape::{MAX_RANK, Nest, elements};
use crate::template::Template;
use crate::uniform::Uniform;
use crate::{Binding, Caps, Features, Kernel, ShaderError};

const WORKGROUP: u32 = 64;

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
        let count = elements(self.name, &nest.extents)?;
        let (key, wgsl) = Template::new("copy", include_str!("wgsl/copy.wgsl"))
            .number("WORKGROUP", WORKGROUP)
            .number("RANK", u32::try_from(rank).unwrap_or(u32::MAX))
            .flag("VEC4", vec4)
            .render()?;
        let signed = |n: i64| {
            i32::try_from(n).map_err(|_| ShaderError::unsupported(self.name, format!("offset or stride {n}")))
        };
        let mut uniform = Uniform::default().u32(count).i32(signed(from)?).i32(signed(to)?);
        for (d, extent) in nest.extents.iter().enumerate().rev() {
            let stride = |operand: &Vec<i64>| signed(operand.get(d).copied().unwrap_or(0));
            let [input, output] = &nest.strides;
            uniform = uniform.u32(*extent).i32(stride(input)?).i32(stride(output)?);
        }
        Ok(Kernel {
            name: self.name,
            key,
            wgsl,
            entry: "main",
            bindings: vec![self.input, Binding::Output, Binding::Uniform],
            uniform: uniform.finish(),
            dispatch: linear_dispatch(self.name, caps, u64::from(count), u64::from(WORKGROUP))?,
            features: Features::default(),
        })
    }
}

/// Strides as the nest wants them.
pub(crate) fn signed(strides: &[u32]) -> Vec<i64> {
    strides.iter().map(|s| i64::from(*s)).collect()
}
