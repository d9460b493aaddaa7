//! COMPLEX_ABS, and the lines of RFFT2D. A complex number is a pair of floats, the real part first.

use std::f64::consts::TAU;

use crate::kernel::linear_dispatch;
use crate::shape::elements;
use crate::template::Template;
use crate::uniform::Uniform;
use crate::walk::Walk;
use crate::{Binding, Caps, Features, Kernel, ShaderError};

const ABS: &str = "complex";
const TRANSFORM: &str = "rfft2d";

/// Absolute values of complex numbers.
///
/// Bindings: `Input(0)`, `Output`, `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abs {
    /// How many.
    pub elements: u32,
}

impl Abs {
    /// The kernel.
    ///
    /// # Errors
    /// When a tensor is larger than one dispatch reaches.
    pub fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        elements(ABS, &[self.elements, 2])?;
        let walk = Walk::new(ABS, caps, &[self.elements])?;
        let template = Template::new(ABS, include_str!("wgsl/complex.wgsl")).number("UNIFORM", 2);
        let (key, wgsl) = walk.apply(template).render()?;
        Ok(Kernel {
            name: ABS,
            key,
            wgsl,
            entry: "main",
            bindings: vec![Binding::Input(0), Binding::Output, Binding::Uniform],
            uniform: walk.dimensions(walk.uniform(), |uniform, _| uniform).finish(),
            dispatch: walk.dispatch(caps)?,
            features: Features::default(),
        })
    }
}

/// Fourier transforms of lines whose length is a power of two.
///
/// Bindings: `Input(0)`, `Input(1)`: [`Transform::roots`], `Output`, `Uniform`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transform {
    /// Images, each transformed by itself.
    pub images: u32,
    /// Extents of the input; what is missing of the transform's own counts as zero, what is beyond is not read.
    pub input: [u32; 2],
    /// Extents of the transform, powers of two.
    pub lengths: [u32; 2],
    /// Which lines.
    pub lines: Lines,
}

/// Along which dimension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lines {
    /// From floats `[images, input]` to complex `[images, lengths[0], lengths[1] / 2 + 1]`: of each row, the half of its
    /// spectrum that the other half follows from.
    Rows,
    /// From those to as many: each column.
    Columns,
}

impl Transform {
    /// Columns of the spectrum.
    fn half(&self) -> u32 {
        self.lengths[1] / 2 + 1
    }

    /// Complex numbers that a workgroup transforms: half as many as a row has floats, since two floats pass for one.
    fn size(&self) -> u32 {
        match self.lines {
            Lines::Rows => (self.lengths[1] / 2).max(1),
            Lines::Columns => self.lengths[0],
        }
    }

    /// Points of the unit circle, clockwise: as many steps as a line has elements make a full turn.
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

    /// The kernel.
    ///
    /// # Errors
    /// When a length is no power of two, a line does not fit the device's workgroup memory, or a tensor is larger than
    /// one dispatch reaches.
    pub fn kernel(&self, caps: &Caps) -> Result<Kernel, ShaderError> {
        let [height, width] = self.input;
        let [rows, columns] = self.lengths;
        if !rows.is_power_of_two() || !columns.is_power_of_two() {
            let why = format!("lengths of {rows} and {columns}, which are not powers of two");
            return Err(ShaderError::unsupported(TRANSFORM, why));
        }
        elements(TRANSFORM, &[self.images, height, width])?;
        elements(TRANSFORM, &[self.images, rows, self.half(), 2])?;
        let size = self.size();
        if u64::from(size) * 8 > u64::from(caps.max_workgroup_storage) {
            let most = caps.max_workgroup_storage;
            let why = format!("lines of {} bytes, workgroup memory has {most}", u64::from(size) * 8);
            return Err(ShaderError::unsupported(TRANSFORM, why));
        }
        let real = self.lines == Lines::Rows;
        let lines = self.images * if real { rows } else { self.half() };
        let (key, wgsl) = Template::new(TRANSFORM, include_str!("wgsl/rfft2d.wgsl"))
            .number("UNIFORM", 3)
            // A vector of a CPU passes its barriers for nothing.
            .number("WORKGROUP", if caps.software { 8 } else { 64 })
            .number("DIGITS", size.ilog2())
            .number("SIZE", size)
            .flag("REAL", real)
            .render()?;
        let extents = [lines, rows, self.half(), height.min(rows), width.min(columns), height, width];
        Ok(Kernel {
            name: TRANSFORM,
            key,
            wgsl,
            entry: "main",
            bindings: vec![Binding::Input(0), Binding::Input(1), Binding::Output, Binding::Uniform],
            uniform: Uniform::default().u32s(extents).finish(),
            dispatch: linear_dispatch(TRANSFORM, caps, lines.into(), 1)?,
            features: Features::default(),
        })
    }
}
