//! Repetition of channels for depthwise convolutions with several output channels per input channel.

use delegraph_core::kernel::Parallel;

use crate::base::buffer::SharedMut;
use crate::base::error::{Result, check_len, product};
use crate::threads::share::{chunk_len, threads_for};

/// Writes each element of `input` `multiplier` times in succession to `out`.
///
/// # Errors
/// Fails if `out` has another length.
pub fn spread<T: Copy + Send + Sync>(
    multiplier: usize,
    input: &[T],
    out: &mut [T],
    par: &dyn Parallel,
) -> Result<()> {
    check_len("spread channels", out.len(), product("spread channels", &[input.len(), multiplier])?)?;
    if out.is_empty() {
        return Ok(());
    }
    let par = threads_for(par, out.len() / 8);
    let piece = chunk_len(par, input.len(), multiplier);
    let shared = SharedMut::new(out);
    par.run(input.len().div_ceil(piece), &|task| {
        let range = task * piece..((task + 1) * piece).min(input.len());
        // SAFETY: each task has other elements, and `Parallel::run` calls each task at most once.
        let out = unsafe { shared.slice(range.start * multiplier, range.len() * multiplier) };
        let input = &input[range];
        match multiplier {
            2 => repeat::<T, 2>(input, out),
            4 => repeat::<T, 4>(input, out),
            8 => repeat::<T, 8>(input, out),
            16 => repeat::<T, 16>(input, out),
            32 => repeat::<T, 32>(input, out),
            _ => input.iter().zip(out.chunks_exact_mut(multiplier)).for_each(|(&x, out)| out.fill(x)),
        }
    });
    Ok(())
}

/// A constant number of copies, so that the compiler makes each one a store.
fn repeat<T: Copy, const N: usize>(input: &[T], out: &mut [T]) {
    input.iter().zip(out.as_chunks_mut::<N>().0).for_each(|(&x, out)| *out = [x; N]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Serial, ThreadPool};

    #[test]
    fn elements_repeat() {
        let pool = ThreadPool::new(3);
        let input: Vec<u8> = (0..20_000).map(|i| (i % 251) as u8).collect();
        for multiplier in [1, 2, 3, 8, 32, 33] {
            for par in [&pool as &dyn Parallel, &Serial] {
                let mut out = vec![0; input.len() * multiplier];
                spread(multiplier, &input, &mut out, par).unwrap();
                assert!(out.iter().enumerate().all(|(i, &x)| x == input[i / multiplier]), "{multiplier}");
            }
        }
        assert!(spread(2, &[1u8, 2], &mut [0; 3], &Serial).is_err());
        assert!(spread(0, &[1u8, 2], &mut [], &Serial).is_ok());
    }
}
