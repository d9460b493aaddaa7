//! STABLEHLO_RNG_BIT_GENERATOR, STABLEHLO_REDUCE, STABLEHLO_SORT, STABLEHLO_DOT_GENERAL,
//! STABLEHLO_CONVOLUTION.

use delegraph_core::kernel::PrepareContext;
use delegraph_core::ops::RngAlgorithm;
use delegraph_core::ops::stablehlo_compute::{
    DotDimensions, StablehloReduceParams, StablehloRngBitGeneratorParams, StablehloSortParams, convolution,
    dot_dimensions, reduced_dimensions, sorted_dimension,
};
use delegraph_core::{BuiltinOp, Element, Error, MutableOpResolver, Result, Shape, TensorType};
use half::{bf16, f16};
use smallvec::SmallVec;

use crate::common::index::{Nest, StridedCopy, Strides, dense_strides};
use crate::common::number::Number;
use crate::common::pace::{PIECE, Pace};
use crate::common::prepared::{Invoke, fill_polled, moved_bits, prepared, unsupported_type};
use crate::common::region::{Combine, Combined, Region, on_combined};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver
        .add_builtin(BuiltinOp::STABLEHLO_RNG_BIT_GENERATOR, prepared(rng_bit_generator), 1)
        .add_builtin(BuiltinOp::STABLEHLO_REDUCE, prepared(reduce).with_side_effects(), 1)
        .add_builtin(BuiltinOp::STABLEHLO_DOT_GENERAL, prepared(dot_general), 1)
        .add_builtin(BuiltinOp::STABLEHLO_CONVOLUTION, prepared(convolve), 1)
        // A called subgraph may have side effects.
        .add_builtin(BuiltinOp::STABLEHLO_SORT, prepared(sort).with_side_effects(), 1);
}

/// Steps of a [`Pace`] per call of a region, which may have no nodes.
const CALL_STEPS: usize = 256;

/// Calls the region for each element, unless the region is a function of [`Combine`] on one tensor.
fn reduce(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let region = cx.params::<StablehloReduceParams>()?.body_subgraph_index;
    let count = cx.output_count();
    if count == 1
        && let Ok(how) = Combine::by_subgraph(cx, region)
        && let Some(Ok(invoke)) = on_combined!(cx.input(0)?.ty(), reduce_of(cx, how))
    {
        return Ok(invoke);
    }
    let (types, widths) = elements(cx, count)?;
    let mut region = Region::new(cx, region, &[types.as_slice(), &types].concat(), count)?;
    let nest = reduction(cx)?;
    Ok(Box::new(move |cx| {
        let inputs = (0..2 * count).map(|i| cx.input_bytes(i)).collect::<Result<Vec<_>>>()?;
        let mut outputs = (0..count).map(|i| cx.output_bytes(i)).collect::<Result<Vec<_>>>()?;
        for ((output, initial), width) in outputs.iter_mut().zip(&inputs[count..]).zip(&widths) {
            fill_polled(output, &initial[..*width], cx.parallel());
        }
        let mut pace = Pace::new(cx);
        nest.try_for_each([0; 2], |[i, o]| {
            pace.spend(CALL_STEPS)?;
            for (t, width) in widths.iter().enumerate() {
                region.set(t, &outputs[t][o * width..][..*width])?;
                region.set(count + t, &inputs[t][i * width..][..*width])?;
            }
            for ((output, value), width) in outputs.iter_mut().zip(region.call(cx, &types)?).zip(&widths) {
                output[o * width..][..*width].copy_from_slice(value.bytes());
            }
            Ok(())
        })
    }))
}

/// Types of the first `count` inputs, and bytes per element.
fn elements(cx: &PrepareContext<'_>, count: usize) -> Result<(Vec<TensorType>, Vec<usize>)> {
    let (mut types, mut widths) = (Vec::new(), Vec::new());
    for i in 0..count {
        let input = cx.input(i)?;
        let bits = moved_bits(&format!("input {i}"), input)?;
        if bits < 8 {
            return Err(unsupported_type(&format!("input {i}"), input));
        }
        types.push(input.ty());
        widths.push(bits / 8);
    }
    Ok((types, widths))
}

/// Loops over the elements of the input, with the offset of each element's output.
fn reduction(cx: &PrepareContext<'_>) -> Result<Nest<2>> {
    let gone = reduced_dimensions(&cx.infer_context())?;
    let shape = cx.input(0)?.shape();
    let mut kept = dense_strides(cx.output(0)?.shape()).into_iter();
    let stride = |d| if gone.contains(&d) { 0 } else { kept.next().unwrap_or(0) };
    let to: Strides = (0..shape.rank()).map(stride).collect();
    Ok(Nest::new(shape, [&dense_strides(shape), &to]))
}

/// Sorts each line of elements along one dimension by the region's comparison. The sort is stable.
fn sort(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let p = cx.params::<StablehloSortParams>()?;
    let count = cx.input_count();
    let (types, widths) = elements(cx, count)?;
    let pairs: Vec<TensorType> = types.iter().flat_map(|&ty| [ty, ty]).collect();
    let mut region = Region::new(cx, p.comparator_subgraph_index, &pairs, 1)?;
    let shape = cx.input(0)?.shape();
    let axis = sorted_dimension(&cx.infer_context())?;
    let (size, strides) = (shape[axis], dense_strides(shape));
    let step = strides[axis].cast_unsigned();
    let mut others = shape.to_vec();
    others[axis] = usize::from(size > 0);
    let lines = Nest::new(&others, [&strides]);
    let mut order = cx.budget().filled(0usize, size)?;
    let mut scratch = cx.budget().filled(0usize, size)?;
    Ok(Box::new(move |cx| {
        let inputs = (0..count).map(|i| cx.input_bytes(i)).collect::<Result<Vec<_>>>()?;
        let mut outputs = (0..count).map(|i| cx.output_bytes(i)).collect::<Result<Vec<_>>>()?;
        let mut pace = Pace::new(cx);
        lines.try_for_each([0], |[start]| {
            pace.spend(size)?;
            order.iter_mut().enumerate().for_each(|(i, at)| *at = start + i * step);
            let mut before = |a: usize, b: usize| {
                pace.spend(CALL_STEPS)?;
                for (t, (input, width)) in inputs.iter().zip(&widths).enumerate() {
                    region.set(2 * t, &input[a * width..][..*width])?;
                    region.set(2 * t + 1, &input[b * width..][..*width])?;
                }
                Ok(region.call(cx, &[TensorType::Bool])?[0].bytes()[0] != 0)
            };
            merge_sort(&mut order, &mut scratch, &mut before)?;
            for ((output, input), width) in outputs.iter_mut().zip(&inputs).zip(&widths) {
                for (i, from) in order.iter().enumerate() {
                    pace.spend(8)?;
                    let to = (start + i * step) * width;
                    output[to..][..*width].copy_from_slice(&input[from * width..][..*width]);
                }
            }
            Ok(())
        })
    }))
}

/// Merge sort by `before`, which returns whether its first argument must precede its second.
fn merge_sort(
    order: &mut [usize],
    scratch: &mut [usize],
    before: &mut impl FnMut(usize, usize) -> Result<bool>,
) -> Result<()> {
    let middle = order.len() / 2;
    if middle == 0 {
        return Ok(());
    }
    merge_sort(&mut order[..middle], scratch, before)?;
    merge_sort(&mut order[middle..], scratch, before)?;
    let (mut left, mut right, mut merged) = (0, middle, 0);
    while left < middle && right < order.len() {
        let (taken, side) = if before(order[right], order[left])? {
            (order[right], &mut right)
        } else {
            (order[left], &mut left)
        };
        scratch[merged] = taken;
        merged += 1;
        *side += 1;
    }
    // The rest of the right half is in place already.
    let rest = &order[left..middle];
    scratch[merged..merged + rest.len()].copy_from_slice(rest);
    merged += rest.len();
    order[..merged].copy_from_slice(&scratch[..merged]);
    Ok(())
}

/// Each output starts with input 1 and combines the elements of input 0, in order.
fn reduce_of<T: Combined>(cx: &mut PrepareContext<'_>, how: Combine) -> Result<Invoke> {
    let combine = T::combine(how).ok_or(()).or_else(|()| Err(unsupported_type("input 0", cx.input(0)?)))?;
    let nest = reduction(cx)?;
    Ok(Box::new(move |cx| {
        let (input, initial, output) = (cx.input::<T>(0)?, cx.input::<T>(1)?[0], cx.output::<T>(0)?);
        output.fill(initial);
        each(&nest, [0; 2], &mut Pace::new(cx), |[i, o]| output[o] = combine(output[o], input[i]))
    }))
}

/// Calls `f` with the operands' offsets for every element, in order, and counts each element as a step.
fn each<const N: usize>(
    nest: &Nest<N>,
    start: [usize; N],
    pace: &mut Pace,
    mut f: impl FnMut([usize; N]),
) -> Result<()> {
    let (size, step) = nest.inner();
    nest.try_for_each_run(start, |mut at| {
        let mut left = size;
        while left > 0 {
            let piece = left.min(PIECE);
            pace.spend(piece + RUN_STEPS)?;
            for _ in 0..piece {
                f(at);
                at = std::array::from_fn(|n| at[n].wrapping_add_signed(step[n]));
            }
            left -= piece;
        }
        Ok(())
    })
}

/// Loops over the products of two inputs.
struct Products {
    /// A copy of input 0 with zeros between and around its elements, if the convolution needs one.
    padded: Option<(StridedCopy, usize)>,
    /// For each output, the offsets of its first product in the inputs, and its own offset.
    outer: Nest<3>,
    /// These offsets for the first output.
    start: [usize; 3],
    /// Offsets of the products of one output.
    inner: Nest<2>,
}

/// Accumulates in the output's type; 16-bit floats accumulate in single precision.
fn sums(cx: &mut PrepareContext<'_>, products: Products) -> Result<Invoke> {
    use TensorType::{BFloat16, Float16, Float32, Float64, Int8, Int32, Int64};
    let types = (cx.input(0)?.ty(), cx.input(1)?.ty(), cx.output(0)?.ty());
    match types {
        (Float32, Float32, Float32) => sums_of(cx, products, |x: f32| x, |sum: f32| sum),
        (Float64, Float64, Float64) => sums_of(cx, products, |x: f64| x, |sum: f64| sum),
        (Float16, Float16, Float16) => sums_of(cx, products, f16::to_f32, f16::from_f32),
        (BFloat16, BFloat16, BFloat16) => sums_of(cx, products, bf16::to_f32, bf16::from_f32),
        (Float16, Float16, Float32) => sums_of(cx, products, f16::to_f32, |sum| sum),
        (BFloat16, BFloat16, Float32) => sums_of(cx, products, bf16::to_f32, |sum| sum),
        (Int8, Int8, Int32) => sums_of(cx, products, |x: i8| i32::from(x), |sum| sum),
        (Int32, Int32, Int32) => sums_of(cx, products, |x: i32| x, |sum: i32| sum),
        (Int64, Int64, Int64) => sums_of(cx, products, |x: i64| x, |sum: i64| sum),
        (a, b, c) => Err(Error::Unsupported(format!(
            "sums of products of {a} and {b} as {c}; supported are FLOAT16, BFLOAT16, FLOAT32, FLOAT64, \
             INT32 and INT64 as the same type, FLOAT16 and BFLOAT16 as FLOAT32, and INT8 as INT32"
        ))),
    }
}

/// Steps of a [`Pace`] per sum, beside its terms.
const SUM_STEPS: usize = 16;

/// Steps of a [`Pace`] per run of neighbours, beside its elements.
const RUN_STEPS: usize = 8;

fn sums_of<I: Element, S: Number, O: Element>(
    cx: &mut PrepareContext<'_>,
    products: Products,
    read: fn(I) -> S,
    write: fn(S) -> O,
) -> Result<Invoke> {
    let Products { padded, outer, start, inner } = products;
    let padded = match padded {
        Some((copy, elements)) => Some((copy, elements, cx.temporary_of::<I>(elements)?)),
        None => None,
    };
    Ok(Box::new(move |cx| {
        let (input, b, output) = (cx.input::<I>(0)?, cx.input::<I>(1)?, cx.output::<O>(0)?);
        let a = match &padded {
            None => input,
            Some((copy, elements, temporary)) => {
                let padded = &mut cx.temporary::<I>(*temporary)?[..*elements];
                padded.fill(I::zeroed());
                copy.run_on(bytemuck::cast_slice(input), bytemuck::cast_slice_mut(padded), cx.parallel());
                &*padded
            }
        };
        let mut pace = Pace::new(cx);
        outer.try_for_each(start, |[i, j, o]| {
            pace.spend(SUM_STEPS)?;
            let mut sum = S::default();
            each(&inner, [i, j], &mut pace, |[i, j]| sum = sum.plus(read(a[i]).times(read(b[j]))))?;
            output[o] = write(sum);
            Ok(())
        })
    }))
}

/// Strides of a dense tensor for the given dimensions.
fn strides_of(shape: &[usize], dims: &[usize]) -> Strides {
    let strides = dense_strides(shape);
    dims.iter().map(|&d| strides[d]).collect()
}

fn dot_general(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let DotDimensions { batch, sum, free, .. } = dot_dimensions(&cx.infer_context())?;
    let (left, right, output) = (cx.input(0)?.shape(), cx.input(1)?.shape(), cx.output(0)?.shape());
    // One output per batch, free dimension of the left side, and free dimension of the right side; a side that lacks
    // one has stride 0.
    let zeros = |count: usize| Strides::from_elem(0, count);
    let join = |parts: [Strides; 3]| -> Strides { parts.into_iter().flatten().collect() };
    let a = join([strides_of(left, &batch[0]), strides_of(left, &free[0]), zeros(free[1].len())]);
    let b = join([strides_of(right, &batch[1]), zeros(free[0].len()), strides_of(right, &free[1])]);
    let sizes: SmallVec<[usize; 8]> = sum[0].iter().map(|&d| left[d]).collect();
    let products = Products {
        padded: None,
        outer: Nest::new(output, [&a, &b, &dense_strides(output)]),
        start: [0; 3],
        inner: Nest::new(&sizes, [&strides_of(left, &sum[0]), &strides_of(right, &sum[1])]),
    };
    sums(cx, products)
}

fn convolve(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let conv = convolution(&cx.infer_context())?;
    let (input, filter, output) = (cx.input(0)?.shape(), cx.input(1)?.shape(), cx.output(0)?.shape());
    let spatial = &conv.input[2..];
    let mut shape = input.to_vec();
    let (mut before, mut apart) = (vec![0; input.rank()], vec![1; input.rank()]);
    for (k, &d) in spatial.iter().enumerate() {
        let windows = &conv.windows;
        (shape[d], before[d], apart[d]) = (windows.padded[k], windows.before[k], windows.base_dilation[k]);
    }
    let bits = moved_bits("input 0", cx.input(0)?)?;
    let same = shape == input.dims() && before.iter().all(|&n| n == 0);
    let padded = (!same)
        .then(|| (StridedCopy::spread(input, &shape, &before, &apart, bits), Shape::new(&shape).elements()));
    let (of_input, of_filter, of_output) =
        (strides_of(&shape, &conv.input), strides_of(filter, &conv.filter), strides_of(output, &conv.output));
    // The output channels are groups of equal size. Each group reads other input channels or another part of the batch.
    let groups = conv.channel_groups.max(conv.batch_groups);
    let (batch, channels) = (output[conv.output[0]], filter[conv.filter[1]] / groups);
    let channels_in = filter[conv.filter[0]];
    let group = if conv.batch_groups > 1 {
        batch.cast_signed() * of_input[0]
    } else {
        channels_in.cast_signed() * of_input[1]
    };
    let mut sizes: SmallVec<[usize; 8]> = SmallVec::from_slice(&[batch, groups, channels]);
    let mut a = Strides::from_slice(&[of_input[0], group, 0]);
    let per_group = channels.cast_signed();
    let mut b = Strides::from_slice(&[0, per_group * of_filter[1], of_filter[1]]);
    let mut o = Strides::from_slice(&[of_output[0], per_group * of_output[1], of_output[1]]);
    let mut window: SmallVec<[usize; 8]> = SmallVec::from_slice(&[channels_in]);
    let (mut along, mut weights) =
        (Strides::from_slice(&[of_input[1]]), Strides::from_slice(&[of_filter[0]]));
    let mut first = 0;
    for k in 0..spatial.len() {
        sizes.push(conv.windows.output[k]);
        a.push(of_input[k + 2].wrapping_mul(conv.windows.stride[k].cast_signed()));
        b.push(0);
        o.push(of_output[k + 2]);
        let (size, stride) = (conv.windows.size[k], of_filter[k + 2]);
        window.push(size);
        along.push(of_input[k + 2].wrapping_mul(conv.windows.dilation[k].cast_signed()));
        weights.push(if conv.reversed[k] { -stride } else { stride });
        first += if conv.reversed[k] { (size - 1) * stride.cast_unsigned() } else { 0 };
    }
    let products = Products {
        padded,
        outer: Nest::new(&sizes, [&a, &b, &o]),
        start: [0, first, 0],
        inner: Nest::new(&window, [&along, &weights]),
    };
    sums(cx, products)
}

/// Steps of a [`Pace`] per block of random words.
const BLOCK_STEPS: usize = 32;

/// The state is a 64-bit key and a 64-bit counter, for Philox optionally with the upper half of the counter.
fn rng_bit_generator(cx: &mut PrepareContext<'_>) -> Result<Invoke> {
    let output = cx.output(1)?;
    match output.ty() {
        TensorType::Int32 | TensorType::UInt32 | TensorType::Int64 | TensorType::UInt64 => {}
        _ => return Err(unsupported_type("output 1", output)),
    }
    let algorithm = cx.params::<StablehloRngBitGeneratorParams>()?.algorithm;
    Ok(Box::new(move |cx| {
        let (state, after) = (cx.input::<u64>(0)?, cx.output::<u64>(0)?);
        let words = cx.output_bytes(1)?.as_chunks_mut::<4>().0;
        let (key, mut counter) = (state[0], state[1]);
        let mut pace = Pace::new(cx);
        match algorithm {
            RngAlgorithm::ThreeFry => {
                for block in words.chunks_mut(2) {
                    pace.spend(BLOCK_STEPS)?;
                    store(block, &threefry(halves(key), halves(counter)));
                    counter = counter.wrapping_add(1);
                }
            }
            RngAlgorithm::Philox | RngAlgorithm::Default => {
                // As in TFLite, the key replaces a missing upper half of the counter.
                let upper = halves(state.get(2).copied().unwrap_or(key));
                for block in words.chunks_mut(4) {
                    pace.spend(BLOCK_STEPS)?;
                    let [low, high] = halves(counter);
                    store(block, &philox(halves(key), [low, high, upper[0], upper[1]]));
                    counter = counter.wrapping_add(1);
                }
            }
        }
        after.copy_from_slice(state);
        after[1] = counter;
        Ok(())
    }))
}

/// Returns the lower and the upper 32 bits.
pub(super) fn halves(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}

fn store(block: &mut [[u8; 4]], words: &[u32]) {
    block.iter_mut().zip(words).for_each(|(b, w)| *b = w.to_le_bytes());
}

/// Threefry with two 32-bit words and 20 rounds (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3").
fn threefry(key: [u32; 2], [mut a, mut b]: [u32; 2]) -> [u32; 2] {
    const ROTATIONS: [[u32; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];
    let keys = [key[0], key[1], key[0] ^ key[1] ^ 0x1BD1_1BDA];
    a = a.wrapping_add(keys[0]);
    b = b.wrapping_add(keys[1]);
    for round in 0..5 {
        for rotation in ROTATIONS[round % 2] {
            a = a.wrapping_add(b);
            b = b.rotate_left(rotation) ^ a;
        }
        a = a.wrapping_add(keys[(round + 1) % 3]);
        b = b.wrapping_add(keys[(round + 2) % 3]).wrapping_add(round as u32 + 1);
    }
    [a, b]
}

/// Philox with four 32-bit words and 10 rounds, from the same paper.
pub(super) fn philox(mut key: [u32; 2], mut counter: [u32; 4]) -> [u32; 4] {
    for _ in 0..10 {
        let [low_0, high_0] = halves(0xD251_1F53 * u64::from(counter[0]));
        let [low_1, high_1] = halves(0xCD9E_8D57 * u64::from(counter[2]));
        counter = [high_1 ^ counter[1] ^ key[0], low_1, high_0 ^ counter[3] ^ key[1], low_0];
        key = [key[0].wrapping_add(0x9E37_79B9), key[1].wrapping_add(0xBB67_AE85)];
    }
    counter
}

#[cfg(test)]
mod tests {
    use delegraph_core::ops::stablehlo_compute::{StablehloConvolutionParams, StablehloDotGeneralParams};

    use super::*;
    use crate::testing::{T, check, error};

    #[test]
    fn dots() {
        let params = |[a, b, c, d]: [&[i64]; 4]| {
            let list = |dims: &[i64]| dims.to_vec();
            let params = StablehloDotGeneralParams::default()
                .lhs_batching_dimensions(list(a))
                .rhs_batching_dimensions(list(b))
                .lhs_contracting_dimensions(list(c))
                .rhs_contracting_dimensions(list(d))
                .precision_config(vec![]);
            params.into()
        };
        let op = BuiltinOp::STABLEHLO_DOT_GENERAL;
        let (a, b) = (
            || Some(T::new(&[2, 3], &[1i8, 2, 3, 4, 5, 6])),
            || Some(T::new(&[2, 3], &[1i8, 0, 2, 0, 1, -1])),
        );
        // a · bᵀ, aᵀ · b, row by row, outer product of all, sum of all.
        let check = |lists, shape: &[usize], want: &[i32]| {
            check(op, 1, params(lists), &[a(), b()], &[T::new(shape, want)]);
        };
        check([&[], &[], &[1], &[1]], &[2, 2], &[7, -1, 16, -1]);
        check([&[], &[], &[0], &[0]], &[3, 3], &[1, 4, -2, 2, 5, -1, 3, 6, 0]);
        check([&[0], &[0], &[1], &[1]], &[2], &[7, -1]);
        check([&[], &[], &[0, 1], &[0, 1]], &[], &[6]);
        check([&[0, 1], &[0, 1], &[], &[]], &[2, 3], &[1, 0, 6, 0, 5, -6]);
        let e = error(op, 1, params([&[], &[], &[1], &[1]]), &[a(), b()], &[T::new(&[2, 2], &[0i16; 4])]);
        assert!(e.contains("sums of products of INT8 and INT8 as INT16"), "{e}");
    }

    #[test]
    fn convolutions() {
        // One dimension, reversed filter, every second output, zeros between the elements and in front.
        let params = StablehloConvolutionParams::default()
            .window_strides(vec![2])
            .padding(vec![1, 0])
            .lhs_dilation(vec![2])
            .window_reversal(vec![true])
            .input_feature_dimension(1)
            .input_spatial_dimensions(vec![2])
            .kernel_input_feature_dimension(1)
            .kernel_spatial_dimensions(vec![2])
            .output_feature_dimension(1)
            .output_spatial_dimensions(vec![2])
            .feature_group_count(1)
            .batch_group_count(1);
        let op = BuiltinOp::STABLEHLO_CONVOLUTION;
        // 0 1 0 2 0 3 with 3 2 1: the windows 0 1 0 and 0 2 0.
        let inputs =
            [Some(T::new(&[1, 1, 3], &[1f32, 2.0, 3.0])), Some(T::new(&[1, 1, 3], &[1f32, 2.0, 3.0]))];
        check(op, 1, params.into(), &inputs, &[T::new(&[1, 1, 2], &[2f32, 4.0])]);
    }

    /// The authors' published test vectors.
    #[test]
    fn known_answers() {
        assert_eq!(threefry([0, 0], [0, 0]), [0x6b20_0159, 0x99ba_4efe]);
        assert_eq!(threefry([u32::MAX; 2], [u32::MAX; 2]), [0x1cb9_96fc, 0xbb00_2be7]);
        assert_eq!(
            threefry([0x1319_8a2e, 0x0370_7344], [0x243f_6a88, 0x85a3_08d3]),
            [0xc492_3a9c, 0x483d_f7a0]
        );
        assert_eq!(philox([0; 2], [0; 4]), [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]);
        assert_eq!(
            philox([u32::MAX; 2], [u32::MAX; 4]),
            [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]
        );
    }

    #[test]
    fn the_counter_advances() {
        let params = |algorithm| StablehloRngBitGeneratorParams::default().algorithm(algorithm).into();
        let op = BuiltinOp::STABLEHLO_RNG_BIT_GENERATOR;
        let state = |v: &[u64]| T::new(&[v.len()], v);
        let first = threefry([7, 0], [u32::MAX, 0]);
        let words = T::new(&[3], &[first[0], first[1], threefry([7, 0], [0, 1])[0]]);
        let input = || [Some(state(&[7, 0xFFFF_FFFF]))];
        check(op, 1, params(RngAlgorithm::ThreeFry), &input(), &[state(&[7, 0x1_0000_0001]), words]);
        let [a, b, c, d] = philox([7, 0], [5, 0, 9, 0]).map(i64::from);
        let words = T::new(&[2], &[a | b << 32, c | d << 32]);
        let want = [state(&[7, 6, 9]), words];
        check(op, 1, params(RngAlgorithm::Philox), &[Some(state(&[7, 5, 9]))], &want);
        let bad = [state(&[7, 0]), T::new(&[1], &[0f32])];
        let e = error(op, 1, params(RngAlgorithm::Philox), &input(), &bad);
        assert!(e.contains("output 1 \"t2\" of type FLOAT32"), "{e}");
    }
}
