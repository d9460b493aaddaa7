//! The custom op `aeq.hadamard_rotation`: products of blocks of a vector with a Hadamard matrix.

use delegraph_core::kernel::{InvokeContext, Kernel, PrepareContext};
use delegraph_core::{MutableOpResolver, Registration, Result};

use super::{check_floats, invalid};
use crate::common::pace::{PIECE, Pace};
use delegraph_core::ops::custom_options::Options;

pub(super) fn register(resolver: &mut MutableOpResolver) {
    let registration = Registration::new(|cx| {
        let size = Options::parse(cx.custom_options)?.size("hadamard_size")?;
        if !size.is_power_of_two() {
            return Err(invalid(format!("a Hadamard matrix of size {size}, which must be a power of two")));
        }
        Ok(Rotation { size })
    });
    resolver.add_custom("aeq.hadamard_rotation", registration, 1);
}

struct Rotation {
    size: usize,
}

/// Each block of `size` neighbours in the last dimension is one vector; the output has the input's shape.
impl Kernel for Rotation {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        check_floats(cx, 1, 1)?;
        let shape = cx.input(0)?.shape().clone();
        if !shape.last().is_some_and(|last| last.is_multiple_of(self.size)) {
            return Err(invalid(format!(
                "the last dimension of {shape} is not a multiple of the vectors' size {}",
                self.size
            )));
        }
        cx.set_output_shape(0, shape)
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        let (input, output) = (cx.input::<f32>(0)?, cx.output::<f32>(0)?);
        let mut pace = Pace::new(cx);
        pace.zip(1, input, output, |input, output| output.copy_from_slice(input))?;
        let norm = 1.0 / (self.size as f32).sqrt();
        let mix = |a: &mut [f32], b: &mut [f32]| {
            a.iter_mut().zip(b).for_each(|(a, b)| (*a, *b) = (*a + *b, *a - *b));
        };
        for vector in output.chunks_exact_mut(self.size) {
            let mut half = 1;
            while half < self.size {
                // Pieces of pairs, or pairs of pieces; both sizes are powers of two.
                for piece in vector.chunks_mut(PIECE.max(2 * half)) {
                    if half < PIECE {
                        pace.spend(piece.len())?;
                        for pair in piece.chunks_exact_mut(2 * half) {
                            let (a, b) = pair.split_at_mut(half);
                            mix(a, b);
                        }
                        continue;
                    }
                    let (a, b) = piece.split_at_mut(half);
                    for (a, b) in a.chunks_mut(PIECE).zip(b.chunks_mut(PIECE)) {
                        pace.spend(2 * PIECE)?;
                        mix(a, b);
                    }
                }
                half *= 2;
            }
            for piece in vector.chunks_mut(PIECE) {
                pace.spend(piece.len())?;
                piece.iter_mut().for_each(|v| *v *= norm);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use delegraph_core::{Op, Params, Shape};

    use super::*;
    use crate::ReferenceOpResolver;
    use crate::testing::{T, run_custom};

    fn rotated(size: i32, values: &[f32]) -> Result<Vec<(Shape, Vec<u8>)>> {
        let mut builder = flexbuffers::Builder::default();
        let mut map = builder.start_map();
        map.push("hadamard_size", size);
        map.end_map();
        let x = T::new(&[1, values.len()], values);
        let (op, output) = (Op::custom("aeq.hadamard_rotation"), [x.clone()]);
        run_custom(ReferenceOpResolver::new(), op, 1, Params::Custom, builder.view(), &[Some(x)], &output)
    }

    #[test]
    fn vectors_longer_than_a_piece() {
        let mut values = vec![0.0; 2 * PIECE];
        values[2 * PIECE - 1] = 1.0;
        let sign = |i: usize| if i.count_ones().is_multiple_of(2) { 1f32 } else { -1.0 };
        let want: Vec<u8> = (0..2 * PIECE).flat_map(|i| (sign(i) / 1024f32).to_le_bytes()).collect();
        assert!(rotated(2 * PIECE as i32, &values).unwrap()[0].1 == want);
    }

    #[test]
    fn rotates() {
        let run = |size: i32| rotated(size, &[1.0, 2.0, 3.0, 4.0, 2.0, 0.0, 0.0, 0.0]);
        let want = [5.0f32, -1.0, -2.0, 0.0, 1.0, 1.0, 1.0, 1.0];
        assert_eq!(run(4).unwrap()[0].1, want.map(f32::to_le_bytes).concat());
        assert!(run(3).unwrap_err().to_string().contains("size 3, which must be a power of two"));
        assert!(
            run(16).unwrap_err().to_string().contains("[1, 8] is not a multiple of the vectors' size 16")
        );
    }
}
