//! Evidence of which of two different outputs of a case is right:
//!
//! - the distance of both from real numbers;
//! - whether all differing elements depend on NaN, infinities or overflows, are shifted by more bits than they have, or
//!   depend on quotients that exceed 32 bits;
//! - whether operands with different last bits result in the other output, or in differences as large;
//! - whether the difference is a rounding error of sums that an activation clamps.

use delegraph_core::ops::ParamValue;
use delegraph_core::ops::local_response_normalization::LocalResponseNormalizationParams;
use delegraph_core::{BuiltinOp as Op, Quantization};
use delegraph_interpreter::{BuiltinOpResolver, ReferenceOpResolver};

use super::Output;
use super::case::{Case, Computed};
use super::operand::{Kind, Operand, integers};
use super::prelude::*;
use crate::compare::numbers;

impl Case {
    /// Returns the largest distances of two variants of output `i` from the result of real numbers (rounded to floats)
    /// for the same operands: in steps of a quantized output, otherwise relative to the largest result before a fused
    /// activation. `None` if nothing is quantized or a 16-bit float (except of LOCAL_RESPONSE_NORMALIZATION), or if the op does
    /// not compute with real numbers.
    pub fn from_real(&self, i: usize, outputs: [&Computed; 2]) -> Option<[f64; 2]> {
        let real = self.real_output(i)?;
        let quantization = self.outputs.get(i)?.quantization.as_ref().and_then(|q| q.scale_zero_point());
        // Mutants may have floats with a scale, which has no meaning.
        let quantization = quantization.filter(|_| !matches!(outputs[0].ty, Float32 | Float16 | BFloat16));
        // Errors of sums are relative to the sums, not to what an activation leaves of them.
        let sums = self.without_activation().and_then(|case| case.real_output(i));
        let largest = sums.as_ref().unwrap_or(&real).iter().fold(f64::MIN_POSITIVE, |m, v| m.max(v.abs()));
        let distance = |output: &Computed| {
            let elements = numbers(output.ty, &output.bytes)?;
            let (least, most) = integers(output.ty);
            let off = |(&real, &element): (&f64, &f64)| {
                let off = match quantization {
                    // No step represents NaN.
                    Some(_) if real.is_nan() && self.op == Op::QUANTIZE => 0.0,
                    Some((scale, zero)) => {
                        let steps = real / f64::from(scale) + f64::from(zero);
                        (steps.clamp(least, most) - element).abs()
                    }
                    None if real.is_nan() && element.is_nan() => 0.0,
                    None => (real - element).abs() / largest,
                };
                // NaN is not evidence.
                if off.is_nan() { f64::INFINITY } else { off }
            };
            (elements.len() == real.len()).then(|| real.iter().zip(&elements).map(off).fold(0.0, f64::max))
        };
        let [here, there] = outputs.map(distance);
        Some([here?, there?])
    }

    /// Returns output `i` as real numbers.
    fn real_output(&self, i: usize) -> Option<Vec<f64>> {
        if !self.is_single() || self.steps > 1 {
            return None;
        }
        if let Params::LocalResponseNormalization(params) = &self.params {
            return self.normalized(params);
        }
        let real = self.in_real_numbers()?;
        if matches!(self.op, Op::QUANTIZE | Op::DEQUANTIZE) {
            let input = real.inputs.first()?.as_ref()?;
            return numbers(input.ty, &input.data(0, 0));
        }
        let outputs = real.run(real.build().ok()?, ReferenceOpResolver::new()).ok()?;
        let output = outputs.get(i)?;
        numbers(output.ty, &output.bytes)
    }

    /// Returns the output of LOCAL_RESPONSE_NORMALIZATION with sums of 64-bit floats: a difference of its bias and squares
    /// has the error of the squares.
    fn normalized(&self, params: &LocalResponseNormalizationParams) -> Option<Vec<f64>> {
        let input = self.inputs.first()?.as_ref()?;
        let values = numbers(input.ty, &input.data(0, 0))?;
        let (depth, radius) = (*input.shape.last()?, usize::try_from(params.radius).ok()?);
        let [bias, alpha, beta] = [params.bias, params.alpha, params.beta].map(f64::from);
        let row = |row: &[f64]| -> Vec<f64> {
            let at = |(c, value): (usize, &f64)| {
                let window = c.saturating_sub(radius)..c.saturating_add(radius + 1).min(depth);
                let squares: f64 = row.get(window).into_iter().flatten().map(|v| v * v).sum();
                value * (bias + alpha * squares).powf(-beta)
            };
            row.iter().enumerate().map(at).collect()
        };
        Some(values.chunks_exact(depth.max(1)).flat_map(row).collect())
    }

    /// Returns the case with floats for all operands and outputs that are quantized or 16-bit floats.
    fn in_real_numbers(&self) -> Option<Case> {
        let mut case = self.clone();
        (case.version, case.data_type) = (None, None);
        // For float data, the format defines quantized weights without a zero point.
        let hybrid = self.data_type() == Some(Float32);
        let mut any = false;
        for (i, operand) in case.inputs.iter_mut().enumerate() {
            let Some(operand) = operand else { continue };
            let bias = self.bias_scales(i);
            let represents = match operand.ty {
                Int32 | Int64 => bias.is_some(),
                Int8 | UInt8 | Int16 | Int4 | Int2 => operand.quantization.is_some(),
                ty => matches!(ty, Float16 | BFloat16),
            };
            if represents {
                let mut quantization = bias.or(operand.quantization.clone());
                if let Some(Quantization::Affine(affine)) = quantization.as_mut().filter(|_| hybrid) {
                    affine.zero_points = vec![0; affine.zero_points.len()].into();
                }
                *operand = operand.real(i, quantization.as_ref())?;
                any = true;
            }
        }
        for output in &mut case.outputs {
            if output.quantization.is_some() || matches!(output.ty, Some(Float16 | BFloat16)) {
                *output = Output { ty: Some(Float32), quantization: None, ..output.clone() };
            }
        }
        any.then_some(case)
    }

    /// Returns the scales of operand `i` if it is the bias of quantized sums: the products of the input's and the
    /// weights' scales.
    fn bias_scales(&self, i: usize) -> Option<Quantization> {
        let (input, weights, bias) = match self.op {
            Op::CONV_2D | Op::DEPTHWISE_CONV_2D | Op::FULLY_CONNECTED => (0, 1, 2),
            Op::TRANSPOSE_CONV => (2, 1, 3),
            _ => return None,
        };
        let affine = |i: usize| self.inputs.get(i)?.as_ref()?.quantization.as_ref()?.affine();
        let scale = *affine(input)?.scales.first()?;
        let mut scales = affine(weights)?.clone();
        scales.scales.iter_mut().for_each(|s| *s *= scale);
        scales.zero_points = vec![0; scales.scales.len()].into();
        scales.dimension = 0;
        (i == bias).then_some(Quantization::Affine(scales))
    }

    /// Returns the magnitude from which floats overflow: in products, or in conversions to 32 bits.
    fn overflow(&self) -> f64 {
        let output = self.outputs.first().filter(|_| self.op == Op::QUANTIZE);
        let scale = output.and_then(|output| output.quantization.as_ref()?.scale_zero_point());
        scale.map_or(1e18, |(scale, _)| f64::from(scale) * f64::from(1u32 << 31)).min(1e18)
    }

    /// Returns whether NaN, infinities and floats that overflow influence all these elements of output `i`: each
    /// element changes if they are replaced by other numbers. Outputs count across all steps.
    pub fn behind_specials(&self, i: usize, at: &[usize]) -> bool {
        /// Numbers whose product over the steps of a recurrent layer overflows.
        const OVERFLOW_OF_STEPS: f64 = 1e3;
        let run = |number: Option<f64>, overflow: f64| {
            let mut case = self.clone();
            if let Some(number) = number {
                case.inputs.iter_mut().flatten().for_each(|operand| operand.moderate(number, overflow));
            }
            let outputs = case.run(case.build().ok()?, ReferenceOpResolver::new()).ok()?;
            let output = outputs.into_iter().nth(i)?;
            numbers(output.ty, &output.bytes)
        };
        let Some(own) = run(None, f64::INFINITY) else { return false };
        // The last ones exceed all numbers that do not count as overflow in sums and extrema of usual data.
        let others = [0.37, -2.9, 1e6, -1e6, 1e12, -1e12];
        let outputs: Option<Vec<_>> = others.iter().map(|n| run(Some(*n), self.overflow())).collect();
        let Some(outputs) = outputs else { return false };
        let moderate = self.is_recurrent().then(|| run(Some(0.37), OVERFLOW_OF_STEPS)).flatten();
        let changes = |output: &Vec<f64>, at: usize| {
            output.get(at).map(|v| v.to_bits()) != own.get(at).map(|v| v.to_bits())
        };
        let overflows = |at: usize| own.get(at).is_some_and(|v| !v.is_finite());
        at.iter().all(|&at| {
            outputs.iter().any(|output| changes(output, at))
                || (overflows(at) && moderate.as_ref().is_some_and(|output| changes(output, at)))
        })
    }

    /// As [`Case::behind_specials`], for the elements that are not NaN in `wanted`. At least one element must be NaN
    /// there.
    pub fn nan_or_behind_specials(&self, i: usize, wanted: &Computed, at: &[usize]) -> bool {
        let Some(wanted) = numbers(wanted.ty, &wanted.bytes) else { return false };
        let is_nan = |at: &usize| wanted.get(*at).is_some_and(|v| v.is_nan());
        let rest: Vec<usize> = at.iter().copied().filter(|at| !is_nan(at)).collect();
        rest.len() < at.len() && self.behind_specials(i, &rest)
    }

    /// As [`Case::behind_specials`], for the elements that the optimized kernel does not compute as in `wanted` when NaN and
    /// infinities are replaced. The others, at least one, have no operand that is not finite, but products with the
    /// zeros of a padding, which LiteRT's reference kernel leaves out.
    pub fn beside_padding_or_behind_specials(&self, i: usize, wanted: &Computed, at: &[usize]) -> bool {
        let computed = || {
            let mut case = self.clone();
            let overflow = self.overflow();
            case.inputs.iter_mut().flatten().for_each(|operand| operand.moderate(0.37, overflow));
            let outputs = case.run(case.build().ok()?, BuiltinOpResolver::new()).ok()?;
            let output = outputs.get(i)?;
            Some((numbers(output.ty, &output.bytes)?, numbers(wanted.ty, &wanted.bytes)?))
        };
        let Some((finite, wanted)) = computed() else { return false };
        let same = |at: &usize| {
            finite.get(*at).zip(wanted.get(*at)).is_some_and(|(f, w)| (f - w).abs() <= 1e-5 + 1e-4 * w.abs())
        };
        let rest: Vec<usize> = at.iter().copied().filter(|at| !same(at)).collect();
        rest.len() < at.len() && self.behind_specials(i, &rest)
    }

    /// Returns whether operands that differ by a few units in the last place result in `wanted` as output `i`, which
    /// counts across all steps. In this case, values that are quantized at run time are between two steps, and the
    /// rounding of floats selects one of them.
    pub fn within_roundings(&self, i: usize, wanted: &Computed) -> bool {
        const TRIES: u64 = 64;
        // Floats that are not quantized have no steps.
        let integers = |ty: TensorType| ty.bits().is_some_and(|bits| bits <= 8);
        let hybrid = self.inputs.iter().flatten().any(|operand| integers(operand.ty));
        let agrees = |seed: u64| {
            let mut case = self.clone();
            case.inputs.iter_mut().flatten().for_each(|operand| operand.nudge(seed));
            let outputs = case.run(case.build().ok()?, ReferenceOpResolver::new()).ok()?;
            self.deviation(outputs.get(i)?, wanted, 0).ok()?.is_none().then_some(())
        };
        self.is_single() && hybrid && (1..=TRIES).any(|seed| agrees(seed).is_some())
    }

    /// Returns whether operands that differ by a few units in the last place change all these elements of output `i` of a
    /// recurrent layer by at least a quarter of their difference between two variants: the layer amplifies rounding
    /// errors from step to step. Outputs count across all steps.
    pub fn amplifies_roundings(&self, i: usize, outputs: [&Computed; 2], at: &[usize]) -> bool {
        const RUNS: u64 = 16;
        const MARGIN: f64 = 4.0;
        let run = |seed: Option<u64>| {
            let mut case = self.clone();
            if let Some(seed) = seed {
                case.inputs.iter_mut().flatten().for_each(|operand| operand.nudge(seed));
            }
            let outputs = case.run(case.build().ok()?, ReferenceOpResolver::new()).ok()?;
            let output = outputs.into_iter().nth(i)?;
            numbers(output.ty, &output.bytes)
        };
        let amplifies = || {
            let exact = run(None)?;
            let changed: Vec<Vec<f64>> = (1..=RUNS).map(|seed| run(Some(seed))).collect::<Option<_>>()?;
            let [here, there] = outputs.map(|output| numbers(output.ty, &output.bytes));
            let (here, there) = (here?, there?);
            let within = |&at: &usize| {
                let (exact, off) = (exact.get(at)?, (here.get(at)? - there.get(at)?).abs());
                let change = |run: &Vec<f64>| run.get(at).map_or(0.0, |v| (v - exact).abs());
                Some(off <= MARGIN * changed.iter().map(change).fold(0.0, f64::max))
            };
            Some(at.iter().all(|at| within(at) == Some(true)))
        };
        self.is_single() && self.is_recurrent() && amplifies() == Some(true)
    }

    fn is_recurrent(&self) -> bool {
        matches!(
            self.op,
            Op::LSTM
                | Op::UNIDIRECTIONAL_SEQUENCE_LSTM
                | Op::BIDIRECTIONAL_SEQUENCE_LSTM
                | Op::RNN
                | Op::UNIDIRECTIONAL_SEQUENCE_RNN
                | Op::BIDIRECTIONAL_SEQUENCE_RNN
                | Op::SVDF
        )
    }

    /// Returns whether the state of a recurrent layer has overflowed in all these elements of both variants, or nearly: each is
    /// NaN, infinite, or above a thousandth of the largest float. The order of the sums then decides which it is.
    pub fn state_overflows(&self, outputs: [&Computed; 2], at: &[usize]) -> bool {
        let overflows = |output: &Computed| {
            let elements = numbers(output.ty, &output.bytes)?;
            let far =
                |at: &usize| elements.get(*at).map(|v| v.is_nan() || v.abs() >= f64::from(f32::MAX) / 1e3);
            Some(output.ty == Float32 && at.iter().all(|at| far(at) == Some(true)))
        };
        self.is_single()
            && self.is_recurrent()
            && outputs.iter().all(|output| overflows(output) == Some(true))
    }

    /// Returns whether this output of a recurrent layer has values that are nearly -1 and values that are nearly 1: the zero
    /// point of such a state is between two integers, and the last bit of the activation decides which it is.
    pub fn state_saturates(&self, output: &Computed) -> bool {
        const NEARLY: f64 = 1.0 - 1e-6;
        let Some(elements) = numbers(output.ty, &output.bytes) else { return false };
        self.is_single()
            && self.is_recurrent()
            && [-1.0, 1.0].iter().all(|sign| elements.iter().any(|v| (NEARLY..=1.0).contains(&(v * sign))))
    }

    /// Returns the case without its fused activation, if the op has one.
    fn without_activation(&self) -> Option<Case> {
        let mut case = self.clone();
        let set = case.params.set("fused_activation_function", &ParamValue::Int(0));
        (self.is_single() && set.is_ok()).then_some(case)
    }

    /// Returns whether `off`, a difference of output `i`, is a rounding error of float sums that the fused activation
    /// clamps: at most 2^-20 of the largest sum. Outputs count across all steps.
    pub fn within_clamped_sums(&self, i: usize, off: f64) -> bool {
        let largest = || {
            let case = self.without_activation()?;
            let outputs = case.run(case.build().ok()?, ReferenceOpResolver::new()).ok()?;
            let output = outputs.get(i).filter(|output| output.ty.is_float())?;
            let sums = numbers(output.ty, &output.bytes)?;
            Some(sums.iter().filter(|v| v.is_finite()).fold(0f64, |most, v| most.max(v.abs())))
        };
        largest().is_some_and(|largest| off <= largest / f64::from(1 << 20))
    }

    /// Returns whether the sums of exponentials overflow in all rows of these elements: a quantized SOFTMAX with a negative
    /// `beta` takes differences to the maximum times a positive factor. The results are conversions of NaN to integers.
    pub fn behind_exponentials(&self, at: &[usize]) -> bool {
        let overflows = || {
            let Params::Softmax(params) = &self.params else { return None };
            let input = self.inputs.first()?.as_ref()?;
            let (scale, _) = input.quantization.as_ref()?.scale_zero_point()?;
            let factor = scale * params.beta;
            let steps = numbers(input.ty, &input.data(0, 0))?;
            let depth = input.shape.last().copied().filter(|depth| *depth > 0)?;
            let overflows = |&at: &usize| {
                let row = steps.chunks(depth).nth(at / depth)?;
                let max = row.iter().copied().fold(f64::MIN, f64::max);
                let sum: f32 = row.iter().map(|x| ((x - max) as f32 * factor).exp()).sum();
                Some(sum.is_infinite())
            };
            at.iter().all(|at| overflows(at) == Some(true)).then_some(())
        };
        self.is_single() && self.op == Op::SOFTMAX && overflows().is_some()
    }

    /// Returns whether INT32 operands with -2147483647 in the place of -2147483648 result in `wanted` in all these elements of
    /// output `i`. The quotient of the latter by -1 exceeds 32 bits, which C++ does not define; that of the former does not.
    pub fn behind_quotients(&self, i: usize, wanted: &Computed, at: &[usize]) -> bool {
        let agrees = || {
            let mut case = self.clone();
            let mut any = false;
            for (index, operand) in case.inputs.iter_mut().enumerate() {
                let Some(operand) = operand.as_mut().filter(|operand| operand.ty == Int32) else { continue };
                let mut bytes = operand.data(index, 0);
                for element in
                    bytes.as_chunks_mut::<4>().0.iter_mut().filter(|e| **e == i32::MIN.to_le_bytes())
                {
                    *element = (i32::MIN + 1).to_le_bytes();
                    any = true;
                }
                *operand = operand.clone().bytes(bytes);
            }
            if !any {
                return None;
            }
            let outputs = case.run(case.build().ok()?, ReferenceOpResolver::new()).ok()?;
            let output = outputs.get(i)?;
            let (got, wanted) = (numbers(output.ty, &output.bytes)?, numbers(wanted.ty, &wanted.bytes)?);
            let same = |at: &usize| got.get(*at).zip(wanted.get(*at)).is_some_and(|(g, w)| g == w);
            Some(at.iter().all(same))
        };
        self.steps == 1 && agrees() == Some(true)
    }

    /// Returns whether all these elements are shifted by a negative number of bits, or by at least their width, which
    /// C++ does not define.
    pub fn behind_shifts(&self, at: &[usize]) -> bool {
        let Some(Some(amounts)) = self.inputs.get(1).filter(|_| self.op == Op::STABLEHLO_SHIFT_LEFT) else {
            return false;
        };
        let bits = amounts.ty.bits().unwrap_or(0) as f64;
        let elements = numbers(amounts.ty, &amounts.data(1, 0)).unwrap_or_default();
        at.iter().all(|&at| elements.get(at).is_some_and(|shift| !(0.0..bits).contains(shift)))
    }
}

impl Operand {
    /// Returns the real numbers that the elements of operand `index` represent, as floats.
    fn real(&self, index: usize, quantization: Option<&Quantization>) -> Option<Operand> {
        let elements = match self.ty {
            // These are inputs of type float.
            Int4 | Int2 | BFloat16 => numbers(Float32, &self.fed_data(index, 0)),
            ty => numbers(ty, &self.data(index, 0)),
        }?;
        let affine = quantization.and_then(|q| q.affine());
        let real = |(i, element): (usize, &f64)| {
            let (scale, zero) = affine.map_or(Some((1.0, 0.0)), |affine| self.scale(affine, i))?;
            Some((scale * (element - zero)) as f32)
        };
        let real: Vec<f32> = elements.iter().enumerate().map(real).collect::<Option<_>>()?;
        let bytes = real.iter().flat_map(|v| v.to_le_bytes()).collect();
        let kind = Some(self.kind).filter(|kind| *kind != Kind::Variable)?;
        let mut real = x(Float32, &self.shape).bytes(bytes);
        real.kind = kind;
        Some(real)
    }
}

#[cfg(test)]
mod tests {
    use delegraph_core::ops::binary::{DivParams, MulParams};
    use delegraph_core::ops::conv_2d::Conv2DParams;
    use delegraph_core::ops::softmax::SoftmaxParams;

    use super::*;

    fn output(ty: TensorType, shape: &[usize], bytes: &[u8]) -> Computed {
        Computed { ty, shape: delegraph_core::Shape::new(shape), quantized: true, bytes: bytes.to_vec() }
    }

    #[test]
    fn distances_from_real_numbers() {
        let operand = |elements: &[i8]| given(&[2], elements).q(0.5, 1);
        let params = MulParams::default().fused_activation_function(Activation::None);
        let case = Case::new(Op::MUL, params, [operand(&[5, 3]), operand(&[7, -3])]).q(0.25, -1);
        // 2 · 3 and 1 · -2 are 24 and -8 steps from the zero point.
        let [right, wrong] = [&[23u8, 247], &[23, 9]].map(|bytes| output(Int8, &[2], bytes));
        assert_eq!(case.from_real(0, [&right, &wrong]), Some([0.0, 18.0]));
        let floats = [6.0f32, -2.0].map(f32::to_le_bytes).concat();
        let [right, wrong] = [&floats[..], &[0; 8]].map(|bytes| output(Float32, &[2], bytes));
        assert_eq!(case.from_real(0, [&right, &wrong]), Some([0.0, 1.0]));
    }

    #[test]
    fn sums_between_two_steps() {
        use delegraph_core::ops::fully_connected::FullyConnectedParams;
        // The largest input is 127 steps; the other one is between steps 63 and 64.
        let input = given(&[1, 2], &[127f32, 63.5]);
        let weights = given(&[1, 2], &[0i8, 1]).constant().q(1.0, 0);
        let case = Case::new(Op::FULLY_CONNECTED, FullyConnectedParams::default(), [input, weights]);
        let output =
            |value: f32| Computed { quantized: false, ..output(Float32, &[1, 1], &value.to_le_bytes()) };
        assert!(case.within_roundings(0, &output(63.0)) && case.within_roundings(0, &output(64.0)));
        assert!(!case.within_roundings(0, &output(65.0)));
    }

    #[test]
    fn rounding_errors_that_grow_from_step_to_step() {
        use delegraph_core::ops::rnn::SequenceRnnParams;
        // Each step multiplies the state by 8.
        let params =
            SequenceRnnParams::default().time_major(true).fused_activation_function(Activation::None);
        let case = |op, shape: &[usize]| {
            let one = |value: f32| given(&[1, 1], &[value]).constant();
            let bias = given(&[1], &[0f32]).constant();
            let state = x(Float32, &[1, 1]).variable();
            Case::new(op, params.clone(), [x(Float32, shape), one(1.0), one(8.0), bias, state])
        };
        let case = case(Op::UNIDIRECTIONAL_SEQUENCE_RNN, &[6, 1, 1]);
        let outputs = case.run(case.build().unwrap(), ReferenceOpResolver::new()).unwrap();
        let right = outputs.first().unwrap();
        let moved = |factor: f32| {
            let moved = right.bytes.as_chunks::<4>().0.iter().map(|v| f32::from_le_bytes(*v) * factor);
            Computed { bytes: moved.flat_map(f32::to_le_bytes).collect(), ..right.clone() }
        };
        assert!(case.amplifies_roundings(0, [right, &moved(1.0 + 4.0 * f32::EPSILON)], &[5]));
        assert!(!case.amplifies_roundings(0, [right, &moved(1.001)], &[5]));
    }

    #[test]
    fn sums_that_an_activation_clamps() {
        let operand = |elements: &[f32]| given(&[2], elements);
        let params = |activation| MulParams::default().fused_activation_function(activation);
        let case = |activation| {
            Case::new(Op::MUL, params(activation), [operand(&[64.0, 0.5]), operand(&[64.0, 1.0])])
        };
        // The largest product is 4096, of which 2^-20 is 1/256.
        let clamped = case(Activation::Relu6);
        assert!(clamped.within_clamped_sums(0, 1.0 / 256.0));
        assert!(!clamped.within_clamped_sums(0, 1.0 / 255.0));
        assert!(!clamped.within_clamped_sums(0, f64::INFINITY));
        let copy = Case::new(Op::ABS, Params::None, [operand(&[64.0, 0.5])]);
        assert!(!copy.within_clamped_sums(0, 1e-9));
    }

    #[test]
    fn elements_behind_quotients_that_exceed_32_bits() {
        let case = |least: i32| {
            Case::new(Op::DIV, DivParams::default(), [given(&[2], &[least, 6]), given(&[2], &[-1, 2])])
        };
        let wanted = |first: i32| output(Int32, &[2], bytemuck::cast_slice(&[first, 3]));
        assert!(case(i32::MIN).behind_quotients(0, &wanted(i32::MAX), &[0]));
        assert!(!case(i32::MIN).behind_quotients(0, &wanted(5), &[0]));
        assert!(!case(i32::MIN + 1).behind_quotients(0, &wanted(i32::MAX), &[0]));
    }

    #[test]
    fn elements_behind_exponentials_that_overflow() {
        let case = |beta: f32| {
            // The numbers of the first row are up to 118 apart: e^118 with a `beta` of -2, e^59 with -1.
            let input = x(Int8, &[2, 4]).q(0.5, 0).mixed(&[31.0, -32.0]);
            let params = SoftmaxParams::default().beta(beta);
            Case::new(Op::SOFTMAX, params, [input]).outputs([Output::of(Int8).q(1.0 / 256.0, -128)])
        };
        assert!(case(-2.0).behind_exponentials(&[0, 1]));
        assert!(!case(-1.0).behind_exponentials(&[0]));
        assert!(!case(2.0).behind_exponentials(&[0]));
    }

    #[test]
    fn elements_beside_padding() {
        let params = Conv2DParams::default().padding(Padding::Same).stride_w(1).stride_h(1);
        let params = params.dilation_w_factor(1).dilation_h_factor(1);
        let weights = given(&[1, 1, 3, 1], &[f32::INFINITY, 1.0, 1.0]);
        let case = Case::new(Op::CONV_2D, params, [given(&[1, 1, 2, 1], &[1f32, 2.0]), weights]);
        // The first weight is left of the first element, and at the first element for the second one.
        let wanted = |first: f32| output(Float32, &[1, 1, 2, 1], bytemuck::cast_slice(&[first, f32::NAN]));
        assert!(case.beside_padding_or_behind_specials(0, &wanted(3.0), &[0, 1]));
        assert!(!case.beside_padding_or_behind_specials(0, &wanted(4.0), &[0, 1]));
        assert!(!case.beside_padding_or_behind_specials(0, &wanted(3.0), &[1]));
    }

    #[test]
    fn elements_behind_nan() {
        let operand = x(Float32, &[6]).mixed(&[f64::NAN, 2.0]);
        let case = Case::new(Op::ABS, Params::None, [operand]);
        assert!(case.behind_specials(0, &[2]));
        assert!(!case.behind_specials(0, &[2, 5]));
        // The third element is 2^32 steps.
        let operand = x(Float32, &[6]).mixed(&[4096.0, 2.0]);
        let case = |scale: f32| {
            Case::new(Op::QUANTIZE, Params::None, [operand.clone()]).outputs([Output::of(Int8).q(scale, 0)])
        };
        assert!(case(2f32.powi(-20)).behind_specials(0, &[2]));
        assert!(!case(2f32.powi(-10)).behind_specials(0, &[2]));
    }
}
