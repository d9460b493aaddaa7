//! COMPLEX_ABS, and the lines of RFFT2D. A complex number is a pair of floats, the real part first.

use std::f64::consts::TAU;

use crate::binding::bindings;
use crate::kernel::{linear_dispatch, looped};
use crate::shape::elements;
use crate::template::Template;
use crate::uniform::Uniform;
use crate::walk::Walk;
use crate::{Caps, Kernel, OtherSizes, Shader, ShaderError};

const ABS: &str = "complex";
const TRANSFORM: &str = "rfft2d";

/// Absolute values of complex numbers.
///
/// Bindings: `Input(0)`, `Output`, `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abs {
    /// Number of complex numbers.
    pub elements: u32,
}

impl Shader for Abs {
    /// # Errors
    /// For a tensor larger than one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        elements(ABS, &[self.elements, 2])?;
        let walk = Walk::new(ABS, caps, &[self.elements])?;
        let template = Template::new(ABS, include_str!("wgsl/complex.wgsl"));
        let template = walk.apply(template);
        Ok(Kernel {
            variant: template.variant(ABS, bindings(1)),
            uniform: walk.dimensions(walk.uniform(), |uniform, _| uniform).finish(),
            dispatch: walk.dispatch(caps)?,
            iterations: walk.iterations(),
        })
    }

    fn other_sizes(&self, _: &Caps) -> OtherSizes {
        OtherSizes::SAME
    }
}

/// Fourier transforms of lines whose length is a power of two.
///
/// Bindings: `Input(0)`, `Input(1)`: [`Transform::roots`], `Output`, `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transform {
    /// Number of images, which are transformed independently.
    pub images: u32,
    /// Extents of the input, which is padded with zeros or cropped to those of the transform.
    pub input: [u32; 2],
    /// Extents of the transform, powers of two.
    pub lengths: [u32; 2],
    /// Lines that are transformed.
    pub lines: Lines,
}

/// The dimension of a transform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lines {
    /// From floats `[images, input]` to complex numbers `[images, lengths[0], lengths[1] / 2 + 1]`: of each row, one half
    /// of the spectrum, which determines the other half.
    Rows,
    /// From these complex numbers to the same number of them: each column.
    Columns,
}

impl Transform {
    /// Columns of the spectrum.
    fn half(&self) -> u32 {
        self.lengths[1] / 2 + 1
    }

    /// Number of complex numbers that a workgroup transforms. Two floats of a row count as one.
    fn size(&self) -> u32 {
        match self.lines {
            Lines::Rows => (self.lengths[1] / 2).max(1),
            Lines::Columns => self.lengths[0],
        }
    }

    /// Returns the contents of `Input(1)`: the first half of the points that divide the unit circle, clockwise from 1,
    /// into a part per element of a line.
    pub fn roots(&self) -> Vec<[f32; 2]> {
        let (count, turn) = match self.lines {
            Lines::Rows => (self.size() + 1, 2 * self.size()),
            Lines::Columns => (self.size() / 2 + 1, self.size()),
        };
        let root = |k: u32| {
            let (sin, cos) = (-TAU * f64::from(k) / f64::from(turn)).sin_cos();
            [cos as f32, sin as f32]
        };
        (0..count).map(root).collect()
    }
}

impl Shader for Transform {
    /// # Errors
    /// For a length that is not a power of two, a line that exceeds the device's workgroup memory, and a tensor larger than
    /// one dispatch reaches.
    fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let [height, width] = self.input;
        let [rows, columns] = self.lengths;
        if !rows.is_power_of_two() || !columns.is_power_of_two() {
            let why = format!("lengths of {rows} and {columns}; powers of two are supported");
            return Err(ShaderError::unsupported(TRANSFORM, why));
        }
        elements(TRANSFORM, &[self.images, height, width])?;
        elements(TRANSFORM, &[self.images, rows, self.half(), 2])?;
        let size = self.size();
        if u64::from(size) * 8 > u64::from(caps.max_workgroup_storage) {
            let max = caps.max_workgroup_storage;
            let why = format!("lines of {} bytes; workgroup memory has {max}", u64::from(size) * 8);
            return Err(ShaderError::unsupported(TRANSFORM, why));
        }
        let real = self.lines == Lines::Rows;
        let lines = self.images * if real { rows } else { self.half() };
        let template = Template::new(TRANSFORM, include_str!("wgsl/rfft2d.wgsl"))
            // A workgroup that is one vector of a CPU passes barriers at no cost.
            .number("WORKGROUP", if caps.software { 8 } else { 64 })
            .number("DIGITS", size.ilog2())
            .number("SIZE", size)
            .flag("REAL", real);
        let extents = [lines, rows, self.half(), height.min(rows), width.min(columns), height, width];
        Ok(Kernel {
            variant: template.variant(TRANSFORM, bindings(2)),
            uniform: Uniform::default().u32s(extents).finish(),
            dispatch: linear_dispatch(TRANSFORM, caps, lines.into(), 1)?,
            iterations: looped(size.ilog2() + 3, looped(size.div_ceil(8), 0)),
        })
    }

    fn other_sizes(&self, _: &Caps) -> OtherSizes {
        OtherSizes::SAME
    }
}
