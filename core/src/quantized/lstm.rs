//! Integer LSTM cells: the arithmetic that is derived from scales while preparing. Values and weights have 8 bits,
//! states and gates 16. A gate's two matrix products are added with 8 bits if the file has the scales of all twelve
//! intermediate values, else with 16 bits.

use crate::error::{Error, Result, counted};
use crate::ops::lstm::inputs::{CELL, INPUT};
use crate::quantized::fixed_point::Multiplier;

/// Scale and zero point.
pub type Affine = (f32, i32);

/// The rescaling of a matrix product.
#[derive(Debug, Clone, Copy)]
pub struct Product {
    /// The multiplier of its sums.
    pub by: Multiplier,
    /// The zero point of the vector.
    pub from: i32,
    /// The zero point of the result.
    pub to: i32,
}

/// The arithmetic of a gate.
#[derive(Debug, Clone, Copy)]
pub struct Gate {
    /// The product with the input.
    pub input: Product,
    /// The product with the last output.
    pub last: Product,
    /// From the two 8-bit products to the gate; only in cells with 8-bit products. The second multiplier may be
    /// negative.
    pub narrow: Option<[Multiplier; 2]>,
    /// From the products of peephole weights and states to the gate.
    pub peephole: Multiplier,
    /// The scale of the normalization's factors, and the minimum variance, which replaces a smaller one.
    pub norm: Option<(Multiplier, i32)>,
}

/// The params of a cell.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The number of cells.
    pub cells: usize,
    /// The number of outputs.
    pub outputs: usize,
    /// The scale of the output.
    pub output_scale: f32,
    /// The greatest magnitude of the cell state; 0 for any.
    pub cell_clip: f32,
    /// The greatest magnitude of the projected output; 0 for any.
    pub output_clip: f32,
}

/// The arithmetic of a cell: its multipliers, zero points and limits.
#[derive(Debug, Clone, Copy)]
pub struct Cell {
    /// Gates in the order input, forget, cell, output; the first is missing if it is the complement of the forget gate.
    pub gates: [Option<Gate>; 4],
    /// The unit of the state is 2 to this power, from -15 to -9.
    pub state_exponent: i32,
    /// The greatest magnitude of a state; 0 for any.
    pub cell_clip: i32,
    /// The greatest magnitude of a projected output; 0 for any.
    pub output_clip: i32,
    /// From the product of state and output gate to the hidden values, with their zero point.
    pub hidden: (Multiplier, i32),
    /// From the sums of the projection to the output.
    pub projection: Option<Multiplier>,
    /// The zero point of the output.
    pub output_zero: i32,
    /// Whether the two products of a gate are added with 8 bits.
    pub narrow: bool,
}

impl Cell {
    /// Creates the arithmetic of a cell. `of` returns the scale and zero point of an input, if the cell has the input;
    /// `intermediates` has those of the intermediate values, if the file has them.
    ///
    /// # Errors
    /// For unsupported scales, and for optional parts that are not supported together.
    pub fn new(
        of: impl Fn(usize) -> Result<Option<Affine>>,
        intermediates: &[Option<Affine>],
        settings: Settings,
    ) -> Result<Self> {
        let Settings { cells, outputs, output_scale, cell_clip, output_clip } = settings;
        let scales = Scales::new(of, intermediates)?;
        let narrow = scales.narrow;
        let (state_scale, state_exponent) = scales.state()?;
        let parts = scales.parts()?;
        let mut gates = [None; 4];
        for (i, gate) in gates.iter_mut().enumerate() {
            *gate = scales.gate(i, parts, state_exponent)?;
        }
        if narrow {
            imitate_narrow_defects(&mut gates);
        }
        if parts.peephole && outputs > cells {
            return Err(Error::Unsupported(format!(
                "peepholes with {} and {}; at most as many outputs as cells are supported",
                counted(outputs, "output"),
                counted(cells, "cell")
            )));
        }
        let (hidden_scale, hidden_zero) = if narrow { (2f32.powi(-15), 0) } else { scales.between(4)? };
        let of_hidden = 2f64.powi(-15) / f64::from(hidden_scale) * 2f64.powi(-15);
        let projection = scales.projection(hidden_scale)?;
        let clipped = |limit: f32, scale: f32, most: f32| {
            if limit > 0.0 { (limit / scale).min(most) as i32 } else { 0 }
        };
        Ok(Cell {
            gates,
            state_exponent,
            cell_clip: match narrow && cell_clip >= 1.0 {
                true => 0,
                false => clipped(cell_clip, state_scale, 32767.0),
            },
            output_clip: clipped(output_clip, output_scale, 127.0),
            hidden: (Multiplier::new((of_hidden as f32).into())?, hidden_zero),
            projection,
            output_zero: scales.last.1,
            narrow,
        })
    }
}

/// TFLite's kernel for 12 intermediates always couples input and forget gate. For the output gate it uses the shift of
/// the forget gate's last output as the multiplier of its own.
fn imitate_narrow_defects(gates: &mut [Option<Gate>; 4]) {
    gates[0] = None;
    let shift = gates[1].and_then(|gate| gate.narrow).map_or(0, |[_, of_last]| of_last.shift);
    if let Some(Gate { narrow: Some([_, of_last]), .. }) = &mut gates[3] {
        of_last.multiplier = shift;
    }
}

/// The optional parts of a cell.
#[derive(Clone, Copy)]
struct Parts {
    normalized: bool,
    peephole: bool,
}

/// The scales and zero points of a cell's operands and intermediates.
struct Scales<'a, F> {
    of: F,
    intermediates: &'a [Option<Affine>],
    /// Whether the two products of a gate are added with 8 bits.
    narrow: bool,
    input: Affine,
    /// Of the last output.
    last: Affine,
}

impl<'a, F: Fn(usize) -> Result<Option<Affine>>> Scales<'a, F> {
    fn new(of: F, intermediates: &'a [Option<Affine>]) -> Result<Self> {
        let narrow = match intermediates.len() {
            5 => false,
            12 => true,
            n => {
                return Err(Error::InvalidNode(format!(
                    "an integer cell with {}, expected 5 or 12",
                    counted(n, "intermediate")
                )));
            }
        };
        let mut scales =
            Scales { of, intermediates, narrow, input: Affine::default(), last: Affine::default() };
        scales.input = scales.required(INPUT)?;
        scales.last = scales.required(CELL.output_state)?;
        Ok(scales)
    }

    /// Returns scale and zero point of an intermediate.
    fn between(&self, i: usize) -> Result<Affine> {
        let known = self.intermediates.get(i).copied().flatten();
        known
            .filter(|(scale, _)| *scale > 0.0 && scale.is_finite())
            .ok_or_else(|| Error::InvalidNode(format!("intermediate {i} must have a scale and zero point")))
    }

    /// Returns scale and zero point of an input.
    fn required(&self, i: usize) -> Result<Affine> {
        (self.of)(i)?.ok_or_else(|| Error::InvalidNode(format!("input {i} is missing")))
    }

    fn scale(&self, i: usize) -> Result<f32> {
        Ok(self.required(i)?.0)
    }

    fn has(&self, i: Option<usize>) -> Result<bool> {
        i.map_or(Ok(false), |i| Ok((self.of)(i)?.is_some()))
    }

    /// Returns the scale of the cell state, and its exponent.
    fn state(&self) -> Result<(f32, i32)> {
        let scale = self.scale(CELL.cell_state)?;
        let supported = |e: i32| if self.narrow { e == -15 } else { (-15..=-9).contains(&e) };
        match exponent_of(scale).filter(|&e| supported(e)) {
            Some(exponent) => Ok((scale, exponent)),
            None => {
                let only = if self.narrow { "2^-15 is" } else { "powers of two from 2^-15 to 2^-9 are" };
                Err(Error::Unsupported(format!("cell state scale {scale}; only {only} supported")))
            }
        }
    }

    /// Returns the optional parts of the cell, if they are supported together.
    fn parts(&self) -> Result<Parts> {
        let normalized = self.has(CELL.norm[1])?;
        if self.narrow && !normalized {
            return Err(Error::Unsupported(
                "an integer cell with 12 intermediates and no normalization".into(),
            ));
        }
        let peephole = self.has(CELL.peephole[3])?;
        if self.narrow && peephole {
            return Err(Error::Unsupported("an integer cell with 12 intermediates and peepholes".into()));
        }
        Ok(Parts { normalized, peephole })
    }

    /// Returns the arithmetic of gate `i`; `None` if the cell does not have the gate.
    fn gate(&self, i: usize, parts: Parts, state_exponent: i32) -> Result<Option<Gate>> {
        let Some((weights, _)) = (self.of)(CELL.weights[i])? else { return Ok(None) };
        let product = |weights: f32, (of, from): Affine, (to_scale, to): Affine| -> Result<Product> {
            Ok(Product { by: Multiplier::new((weights * of / to_scale).into())?, from, to })
        };
        let recurrent = self.scale(CELL.recurrent[i])?;
        let sum = match (self.narrow, parts.normalized) {
            (true, _) => self.between(3 * i)?,
            (false, true) => (self.between(i)?.0, 0),
            // Numbers with 3 bits before the point.
            (false, false) => (1.0 / 4096.0, 0),
        };
        // TFLite's kernels also use the cell gate's zero point for the output gate.
        let last_between = match self.narrow {
            true if i == 3 => (self.between(11)?.0, self.between(7)?.1),
            true => self.between(3 * i + 2)?,
            false => sum,
        };
        let input_between = if self.narrow { self.between(3 * i + 1)? } else { sum };
        let peephole = match CELL.peephole[i].filter(|_| parts.peephole) {
            Some(at) => {
                let exact = 2f64.powi(state_exponent) * f64::from(self.scale(at)?) / f64::from(sum.0);
                Multiplier::new((exact as f32).into())?
            }
            None => Multiplier::default(),
        };
        let norm = match CELL.norm[i].filter(|_| parts.normalized) {
            Some(at) => {
                let scale = self.scale(at)?;
                Some((Multiplier::new(scale.into())?, ((10000.0 * scale) as i32).max(1)))
            }
            None => None,
        };
        let narrow = match self.narrow {
            true => Some([
                Multiplier::new((input_between.0 / sum.0).into())?,
                Multiplier::new((last_between.0 / sum.0).into())?,
            ]),
            false => None,
        };
        Ok(Some(Gate {
            input: product(weights, self.input, input_between)?,
            last: product(recurrent, self.last, last_between)?,
            narrow,
            peephole,
            norm,
        }))
    }

    /// Returns the multiplier from the sums of the projection to the output.
    fn projection(&self, hidden_scale: f32) -> Result<Option<Multiplier>> {
        let last_scale = self.last.0;
        match (self.of)(CELL.projection)? {
            Some((weights, _)) => {
                let product = match self.narrow {
                    true => (f64::from(weights) * 2f64.powi(-15) / f64::from(last_scale)) as f32,
                    false => weights * hidden_scale / last_scale,
                };
                Ok(Some(Multiplier::new(product.into())?))
            }
            None if self.narrow => {
                let text = "an integer cell with 12 intermediates and no projection";
                Err(Error::Unsupported(text.into()))
            }
            None => Ok(None),
        }
    }
}

/// Returns the exponent of a power of two; `None` if `scale` is not near one.
fn exponent_of(scale: f32) -> Option<i32> {
    let exponent = scale.log2().round();
    ((scale.log2() - exponent).abs() < 1e-3).then_some(exponent as i32)
}

fn saturate(x: i32) -> i16 {
    x.clamp(i16::MIN.into(), i16::MAX.into()) as i16
}

/// Returns `tanh`, in floating point, of a number in units of 2 to the power `exponent`; the result is in units of
/// 2⁻¹⁵.
pub fn tanh_of_float(x: i16, exponent: i32) -> i16 {
    saturate(((f32::from(x) * 2f32.powi(exponent)).tanh() * 32768.0) as i32)
}

/// Returns the logistic function, in floating point, of a number in units of 2⁻¹²; the result is in units of 2⁻¹⁵.
pub fn logistic_of_float(x: i16) -> i16 {
    let x = f32::from(x) * 2f32.powi(-12);
    saturate((1.0 / (1.0 + (-x).exp()) * 32768.0) as i32)
}

/// Returns the scale of the factors of a normalization in floating point, and that of its biases.
pub fn norm_scales(scale: Multiplier) -> [f32; 2] {
    let scale = (f64::from(scale.multiplier) * 2f64.powi(scale.shift - 31)) as f32;
    [scale, 2f32.powi(-10) * scale]
}

/// Returns the scale of the factors of a normalization in integers, for results in units of 2⁻¹².
pub fn norm_factor(scale: Multiplier) -> Multiplier {
    Multiplier { shift: scale.shift + 12, ..scale }
}
