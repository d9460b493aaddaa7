//! NON_MAX_SUPPRESSION_V4, NON_MAX_SUPPRESSION_V5: boxes by descending score, without those that overlap a better one.

use delegraph_core::kernel::{InvokeContext, PrepareContext, Temporary};
use delegraph_core::{BuiltinOp, Error, MutableOpResolver, Result, TensorType};

use crate::common::pace::Pace;
use crate::common::prepared::{Invoke, prepared, unsupported_type};

pub(super) fn register(resolver: &mut MutableOpResolver) {
    resolver
        .add_builtin(BuiltinOp::NON_MAX_SUPPRESSION_V4, prepared(|cx| prepare(cx, false)), 1)
        .add_builtin(BuiltinOp::NON_MAX_SUPPRESSION_V5, prepared(|cx| prepare(cx, true)), 1);
}

fn prepare(cx: &mut PrepareContext<'_>, soft: bool) -> Result<Invoke> {
    for i in (0..cx.input_count()).filter(|&i| i != 2) {
        if cx.input(i)?.ty() != TensorType::Float32 {
            return Err(unsupported_type(&format!("input {i}"), cx.input(i)?));
        }
    }
    if cx.input(2)?.ty() != TensorType::Int32 {
        return Err(unsupported_type("input 2", cx.input(2)?));
    }
    let boxes = cx.input(0)?.shape()[0];
    let queue = [cx.temporary_of::<i32>(boxes)?, cx.temporary_of::<i32>(boxes)?];
    let scores = cx.temporary_of::<f32>(boxes)?;
    Ok(Box::new(move |cx| select(cx, soft, queue, scores)))
}

/// The number of steps of a comparison of two boxes.
const STEPS_PER_PAIR: usize = 16;

/// Steps of a [`Pace`] for a box that is added to the queue or taken from it.
const QUEUE_STEPS: usize = 64;

fn select(cx: &mut InvokeContext<'_>, soft: bool, queue: [Temporary; 2], scores: Temporary) -> Result<()> {
    let (boxes, input_scores) = (cx.input::<f32>(0)?.as_chunks().0, cx.input::<f32>(1)?);
    let (overlap, least) = (scalar(cx, 3)?, scalar(cx, 4)?);
    let sigma = if soft { scalar(cx, 5)? } else { 0.0 };
    if sigma < 0.0 {
        return Err(Error::Kernel(format!("sigma is {sigma}, which must not be negative")));
    }
    let selected = cx.output::<i32>(0)?;
    let mut selected_scores = if soft { cx.output::<f32>(1)? } else { &mut [] }.iter_mut();
    let (begin, scores) = (cx.temporary::<i32>(queue[1])?, cx.temporary::<f32>(scores)?);
    let mut queue = Queue { boxes: cx.temporary(queue[0])?, len: 0, scores };
    let mut pace = Pace::new(cx);
    for (i, &score) in (0..).zip(input_scores).filter(|(_, score)| **score > least) {
        pace.spend(QUEUE_STEPS)?;
        (begin[i as usize], queue.scores[i as usize]) = (0, score);
        queue.push(i);
    }
    let (most, mut count) = (queue.len.min(selected.len()), 0);
    while count < most
        && let Some(candidate) = queue.pop()
    {
        let c = candidate as usize;
        pace.spend(QUEUE_STEPS + STEPS_PER_PAIR * (1 + count.saturating_sub(begin[c] as usize)))?;
        let score = queue.scores[c];
        let mut suppressed = false;
        // Each pair is compared once: boxes that were selected before the candidate's last visit are skipped.
        for &other in selected[begin[c] as usize..count].iter().rev() {
            let shared = intersection_over_union(boxes[c], boxes[other as usize]);
            suppressed = shared >= overlap;
            if suppressed {
                break;
            }
            if sigma > 0.0 {
                queue.scores[c] *= (-0.5 / sigma * shared * shared).exp();
            }
            if queue.scores[c] <= least {
                break;
            }
        }
        begin[c] = count as i32;
        if suppressed {
            continue;
        }
        if queue.scores[c] == score {
            selected[count] = candidate;
            if let Some(out) = selected_scores.next() {
                *out = score;
            }
            count += 1;
        }
        if queue.scores[c] > least {
            // Other boxes may come first if the score was lowered. A selected box is compared with itself next, which
            // suppresses it, unless it has no area.
            queue.push(candidate);
        }
    }
    selected[count..].fill(0);
    selected_scores.for_each(|score| *score = 0.0);
    cx.output::<i32>(if soft { 2 } else { 1 })?.fill(count as i32);
    Ok(())
}

fn scalar(cx: &mut InvokeContext<'_>, i: usize) -> Result<f32> {
    cx.input(i)?.first().copied().ok_or_else(|| Error::Kernel(format!("input {i} is empty")))
}

/// Boxes by descending score: a binary heap. The order of equal scores is part of the op's results, so the heap works
/// like TFLite's: an element from the end sinks to a leaf along the greater children, the right one of two equals, and
/// rises from there.
struct Queue<'a> {
    boxes: &'a mut [i32],
    len: usize,
    scores: &'a mut [f32],
}

impl Queue<'_> {
    fn score(&self, at: usize) -> f32 {
        self.scores[self.boxes[at] as usize]
    }

    fn push(&mut self, candidate: i32) {
        self.len += 1;
        self.rise(self.len - 1, candidate);
    }

    fn rise(&mut self, mut at: usize, candidate: i32) {
        while at > 0 && self.score((at - 1) / 2) < self.scores[candidate as usize] {
            self.boxes[at] = self.boxes[(at - 1) / 2];
            at = (at - 1) / 2;
        }
        self.boxes[at] = candidate;
    }

    fn pop(&mut self) -> Option<i32> {
        self.len = self.len.checked_sub(1)?;
        let (first, last) = (self.boxes[0], self.boxes[self.len]);
        let mut at = 0;
        while 2 * at + 1 < self.len {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            let next = if right < self.len && self.score(right) >= self.score(left) { right } else { left };
            self.boxes[at] = self.boxes[next];
            at = next;
        }
        self.rise(at, last);
        Some(first)
    }
}

/// Intersection over union of two boxes, each given by two opposite corners `[y, x, y, x]`; 0 if one has no area.
fn intersection_over_union(a: [f32; 4], b: [f32; 4]) -> f32 {
    // As in TFLite: a NaN is kept as the first operand, and ignored as the second.
    let min = |a: f32, b: f32| if b < a { b } else { a };
    let max = |a: f32, b: f32| if a < b { b } else { a };
    let sorted = |[y1, x1, y2, x2]: [f32; 4]| [min(y1, y2), min(x1, x2), max(y1, y2), max(x1, x2)];
    let area = |[y1, x1, y2, x2]: [f32; 4]| (y2 - y1) * (x2 - x1);
    let (a, b) = (sorted(a), sorted(b));
    if area(a) <= 0.0 || area(b) <= 0.0 {
        return 0.0;
    }
    let height = max(min(a[2], b[2]) - max(a[0], b[0]), 0.0);
    let width = max(min(a[3], b[3]) - max(a[1], b[1]), 0.0);
    let shared = height * width;
    shared / (area(a) + area(b) - shared)
}

#[cfg(test)]
mod tests {
    use delegraph_core::Params;

    use super::*;
    use crate::testing::{T, check, error};

    /// Boxes of a row; each overlaps the next by a third of their union.
    fn inputs(starts: &[f32], scores: &[f32], most: i32, scalars: &[f32]) -> Vec<Option<T>> {
        let boxes: Vec<f32> = starts.iter().flat_map(|&x| [0.0, x, 1.0, x + 2.0]).collect();
        let mut all =
            vec![T::new(&[starts.len(), 4], &boxes), T::new(&[scores.len()], scores), T::new(&[], &[most])];
        all.extend(scalars.iter().map(|&s| T::new(&[], &[s])));
        all.into_iter().map(Some).collect()
    }

    fn selected(indices: &[i32], count: i32) -> [T; 2] {
        [T::new(&[indices.len()], indices), T::new(&[], &[count])]
    }

    #[test]
    fn suppresses() {
        let op = BuiltinOp::NON_MAX_SUPPRESSION_V4;
        let (starts, scores) = ([0.0, 1.0, 2.0, 9.0], [0.5, 0.9, 0.8, 0.1]);
        check(op, 1, Params::None, &inputs(&starts, &scores, 4, &[0.3, 0.0]), &selected(&[1, 3, 0, 0], 2));
        check(op, 1, Params::None, &inputs(&starts, &scores, 3, &[0.4, 0.2]), &selected(&[1, 2, 0], 3));
        check(op, 1, Params::None, &inputs(&starts, &scores, 1, &[0.4, 0.0]), &selected(&[1], 1));
        check(op, 1, Params::None, &inputs(&[], &[], 2, &[0.5, 0.0]), &selected(&[0, 0], 0));
    }

    #[test]
    fn equal_scores_come_in_the_order_of_the_heap() {
        let starts: Vec<f32> = (0..9u8).map(|i| f32::from(i) * 10.0).collect();
        let inputs = inputs(&starts, &[0.5; 9], 9, &[0.5, 0.0]);
        let want = selected(&[0, 2, 6, 8, 5, 7, 4, 1, 3], 9);
        check(BuiltinOp::NON_MAX_SUPPRESSION_V4, 1, Params::None, &inputs, &want);
    }

    #[test]
    fn lowers_scores() {
        let op = BuiltinOp::NON_MAX_SUPPRESSION_V5;
        let inputs = |sigma| inputs(&[0.0, 1.0, 9.0], &[0.9, 0.8, 0.7], 3, &[0.5, 0.0, sigma]);
        let lowered = 0.8 * f32::exp(-0.5 / 0.2 / 9.0);
        let want = [T::new(&[3], &[0, 2, 1]), T::new(&[3], &[0.9, 0.7, lowered]), T::new(&[], &[3])];
        check(op, 1, Params::None, &inputs(0.2), &want);
        let e = error(op, 1, Params::None, &inputs(-1.0), &want);
        assert!(e.ends_with("sigma is -1, which must not be negative"), "{e}");
    }

    #[test]
    fn boxes_with_nan() {
        const N: f32 = f32::NAN;
        let corners = [
            [0.0, 0.0, 1.0, 2.0],
            [N, 0.0, 1.0, 2.0],
            [0.0, N, 1.0, 2.0],
            [0.0, 0.0, N, 2.0],
            [0.0, 0.0, 1.0, N],
            [0.0, 3.0, 1.0, 5.0],
        ];
        let mut inputs = inputs(&[0.0; 6], &[0.9, 0.8, 0.7, 0.6, 0.5, 0.4], 6, &[0.5, 0.0, 0.5]);
        inputs[0] = Some(T::new(&[6, 4], corners.as_flattened()));
        // With a NaN as the first coordinate, the overlap and the lowered score are NaN; with a NaN as the second, the
        // box has no area.
        let scores = [0.9f32, 0.6, 0.6, 0.6, 0.6, 0.6];
        let want = [T::new(&[6], &[0, 3, 3, 3, 3, 3]), T::new(&[6], &scores), T::new(&[], &[6])];
        check(BuiltinOp::NON_MAX_SUPPRESSION_V5, 1, Params::None, &inputs, &want);
    }
}
