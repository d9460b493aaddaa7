//! Integer LSTM cells: what is worked out from scales while preparing. Values and weights have 8 bits, states and gates
//! 16. A gate's two matrix products are added either with 16 bits, or, where the file gives the scales of all twelve
//! values in between, with 8 bits.

use crate::fixed_point::Multiplier;
use crate::ops::lstm::inputs::{CELL, INPUT};
use crate::{Error, Result};

/// Scale and zero point.
pub type Affine = (f32, i32);

/// A matrix product that is rescaled.
#[derive(Debug, Clone, Copy)]
pub struct Product {
    /// What its sums are multiplied by.
    pub by: Multiplier,
    /// The zero point of the vector.
    pub from: i32,
    /// The zero point of the result.
    pub to: i32,
}

/// What there is for a gate.
#[derive(Debug, Clone, Copy)]
pub struct Gate {
    /// The product with the input.
    pub input: Product,
    /// The product with the last output.
    pub last: Product,
    /// From the two 8-bit products to the gate; only in cells that have such. The second multiplier may be negative.
    pub narrow: Option<[Multiplier; 2]>,
    /// From the products of peephole weights and states to the gate.
    pub peephole: Multiplier,
    /// The scale of the normalization's factors, and the variance taken for one that is too small.
    pub norm: Option<(Multiplier, i32)>,
}

/// What the node says of a cell beside its operands.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// How many cells it has.
    pub cells: usize,
    /// How many outputs it has.
    pub outputs: usize,
    /// The scale of the output.
    pub output_scale: f32,
    /// The greatest magnitude of the cell state; 0 for any.
    pub cell_clip: f32,
    /// The greatest magnitude of the projected output; 0 for any.
    pub output_clip: f32,
}

/// The numbers of a cell.
#[derive(Debug, Clone, Copy)]
pub struct Cell {
    /// Gates in the order input, forget, cell, output; the first is missing where it is what the forget gate leaves.
    pub gates: [Option<Gate>; 4],
    /// The state counts 2 to this power, from -15 to -9.
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
    /// Whether gates are added with 8 bits.
    pub narrow: bool,
}

impl Cell {
    /// `of` has scale and zero point of an input that is there; `intermediates` those of the values in between, where
    /// the file tells them.
    ///
    /// # Errors
    /// For scales that the cell does not take, and for parts that don't go together.
    pub fn new(
        of: impl Fn(usize) -> Result<Option<Affine>>,
        intermediates: &[Option<Affine>],
        settings: Settings,
    ) -> Result<Self> {
        let narrow = match intermediates.len() {
            5 => false,
            12 => true,
            n => {
                return Err(Error::InvalidNode(format!(
                    "an integer cell with {n} intermediates, expected 5 or 12"
                )));
            }
        };
        let between = |i: usize| {
            let known = intermediates.get(i).copied().flatten();
            known.filter(|(scale, _)| *scale > 0.0 && scale.is_finite()).ok_or_else(|| {
                Error::InvalidNode(format!("intermediate {i} must have a scale and zero point"))
            })
        };
        let there = |i: usize| of(i)?.ok_or_else(|| Error::InvalidNode(format!("input {i} is missing")));
        let scale = |i: usize| -> Result<f32> { Ok(there(i)?.0) };
        let has = |i: Option<usize>| -> Result<bool> { i.map_or(Ok(false), |i| Ok(of(i)?.is_some())) };
        let (input_scale, input_zero) = there(INPUT)?;
        let (last_scale, last_zero) = there(CELL.output_state)?;
        let state_scale = scale(CELL.cell_state)?;
        let state_exponent =
            exponent_of(state_scale).filter(|&e| if narrow { e == -15 } else { (-15..=-9).contains(&e) });
        let Some(state_exponent) = state_exponent else {
            return Err(Error::Unsupported(format!("a cell state that counts {state_scale}")));
        };
        let normalized = has(CELL.norm[1])?;
        if narrow && !normalized {
            return Err(Error::Unsupported(
                "an integer cell with 12 intermediates and no normalization".into(),
            ));
        }
        let peephole = has(CELL.peephole[3])?;
        if narrow && peephole {
            return Err(Error::Unsupported("an integer cell with 12 intermediates and peepholes".into()));
        }
        let mut gates = [None; 4];
        for (i, gate) in gates.iter_mut().enumerate() {
            let Some((weights, _)) = of(CELL.weights[i])? else { continue };
            let product = |weights: f32, of: f32, from: i32, (to_scale, to): Affine| -> Result<Product> {
                Ok(Product { by: Multiplier::new((weights * of / to_scale).into())?, from, to })
            };
            let recurrent = scale(CELL.recurrent[i])?;
            let sum = match (narrow, normalized) {
                (true, _) => between(3 * i)?,
                (false, true) => (between(i)?.0, 0),
                // Numbers with 3 bits before the point.
                (false, false) => (1.0 / 4096.0, 0),
            };
            // The field's kernels take the cell gate's zero point for the output gate's, too.
            let last_between = match narrow {
                true if i == 3 => (between(11)?.0, between(7)?.1),
                true => between(3 * i + 2)?,
                false => sum,
            };
            let input_between = if narrow { between(3 * i + 1)? } else { sum };
            let of_state = match CELL.peephole[i].filter(|_| peephole) {
                Some(at) => {
                    let exact = 2f64.powi(state_exponent) * f64::from(scale(at)?) / f64::from(sum.0);
                    Multiplier::new((exact as f32).into())?
                }
                None => Multiplier::default(),
            };
            let norm = match CELL.norm[i].filter(|_| normalized) {
                Some(at) => {
                    let scale = scale(at)?;
                    Some((Multiplier::new(scale.into())?, ((10000.0 * scale) as i32).max(1)))
                }
                None => None,
            };
            *gate = Some(Gate {
                input: product(weights, input_scale, input_zero, input_between)?,
                last: product(recurrent, last_scale, last_zero, last_between)?,
                narrow: match narrow {
                    true => Some([
                        Multiplier::new((input_between.0 / sum.0).into())?,
                        Multiplier::new((last_between.0 / sum.0).into())?,
                    ]),
                    false => None,
                },
                peephole: of_state,
                norm,
            });
        }
        let Settings { cells, outputs, output_scale, cell_clip, output_clip } = settings;
        let projection = of(CELL.projection)?;
        if peephole && outputs > cells {
            return Err(Error::Unsupported(format!("peepholes with {outputs} outputs of {cells} cells")));
        }
        let hidden_scale = if narrow { 2f32.powi(-15) } else { between(4)?.0 };
        let of_hidden = 2f64.powi(-15) / f64::from(hidden_scale) * 2f64.powi(-15);
        let of_projection = match projection {
            Some((weights, _)) => {
                let product = match narrow {
                    true => (f64::from(weights) * 2f64.powi(-15) / f64::from(last_scale)) as f32,
                    false => weights * hidden_scale / last_scale,
                };
                Some(Multiplier::new(product.into())?)
            }
            None if narrow => {
                let text = "an integer cell with 12 intermediates and no projection";
                return Err(Error::Unsupported(text.into()));
            }
            None => None,
        };
        if narrow {
            // The field's kernel couples input and forget gate whatever the file says. For the output gate it takes the
            // shift of the forget gate's last output for the multiplier of its own.
            gates[0] = None;
            let shift = gates[1].and_then(|gate| gate.narrow).map_or(0, |[_, of_last]| of_last.shift);
            if let Some(Gate { narrow: Some([_, of_last]), .. }) = &mut gates[3] {
                of_last.multiplier = shift;
            }
        }
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
            hidden: (Multiplier::new((of_hidden as f32).into())?, if narrow { 0 } else { between(4)?.1 }),
            projection: of_projection,
            output_zero: last_zero,
            narrow,
        })
    }
}

/// The exponent of a power of two.
fn exponent_of(scale: f32) -> Option<i32> {
    let exponent = scale.log2().round();
    ((scale.log2() - exponent).abs() < 1e-3).then_some(exponent as i32)
}

fn saturate(x: i32) -> i16 {
    x.clamp(i16::MIN.into(), i16::MAX.into()) as i16
}

/// `tanh`, in floating point, of a number that counts 2 to the power `exponent`; the result counts 2⁻¹⁵.
pub fn tanh_of_float(x: i16, exponent: i32) -> i16 {
    saturate(((f32::from(x) * 2f32.powi(exponent)).tanh() * 32768.0) as i32)
}

/// The logistic function, in floating point, of a number that counts 2⁻¹²; the result counts 2⁻¹⁵.
pub fn logistic_of_float(x: i16) -> i16 {
    let x = f32::from(x) * 2f32.powi(-12);
    saturate((1.0 / (1.0 + (-x).exp()) * 32768.0) as i32)
}

/// The scale of the factors of a normalization in floating point, and that of its biases.
pub fn norm_scales(scale: Multiplier) -> [f32; 2] {
    let scale = (f64::from(scale.multiplier) * 2f64.powi(scale.shift - 31)) as f32;
    [scale, 2f32.powi(-10) * scale]
}

/// The scale of the factors of a normalization in integers: of results that count 2⁻¹².
pub fn norm_factor(scale: Multiplier) -> Multiplier {
    Multiplier { shift: scale.shift + 12, ..scale }
}
