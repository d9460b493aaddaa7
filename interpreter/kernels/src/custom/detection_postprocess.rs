//! The custom op `TFLite_Detection_PostProcess`: decodes boxes and keeps the best non-overlapping ones.

use delegraph_core::error::counted;
use delegraph_core::kernel::{InvokeContext, Kernel, PrepareContext, Temporary, TensorView};
use delegraph_core::{Error, MutableOpResolver, Registration, Result, TensorType};

use super::{dims, invalid};
use crate::common::pace::{PIECE, Pace};
use crate::common::prepared::unsupported_type;
use crate::reference::sort_positions;
use delegraph_core::ops::custom_options::Options;

pub(super) fn register(resolver: &mut MutableOpResolver) {
    let registration = Registration::new(|cx| {
        let params = Params::read(&Options::parse(cx.custom_options)?)?;
        Ok(PostProcess { params, plan: None })
    });
    resolver.add_custom("TFLite_Detection_PostProcess", registration, 1);
}

/// The node's options.
#[derive(Clone, Copy)]
struct Params {
    /// Maximum number of boxes to keep.
    detections: usize,
    /// Number of classes to report per box. Each one takes a place in the outputs.
    classes_per_detection: usize,
    /// Whether overlaps are suppressed per class. Otherwise only the best class of each box counts.
    per_class: bool,
    /// Maximum number of boxes to keep per class.
    detections_per_class: usize,
    classes: usize,
    /// Minimum score.
    score: f32,
    /// Intersection over union above which one box suppresses another.
    overlap: f32,
    /// Divisors of the encoded centers and sizes: y, x, height, width.
    scales: [f32; 4],
}

impl Params {
    fn read(options: &Options<'_>) -> Result<Self> {
        let p = Params {
            detections: options.size("max_detections")?,
            classes_per_detection: options.size("max_classes_per_detection")?,
            per_class: options.number("use_regular_nms")?.is_some_and(|v| v != 0.0),
            detections_per_class: match options.number("detections_per_class")? {
                Some(_) => options.size("detections_per_class")?,
                None => 100,
            },
            classes: options.size("num_classes")?,
            score: options.float("nms_score_threshold")?,
            overlap: options.float("nms_iou_threshold")?,
            scales: [
                options.float("y_scale")?,
                options.float("x_scale")?,
                options.float("h_scale")?,
                options.float("w_scale")?,
            ],
        };
        let per_class = p.detections_per_class.min(p.detections);
        if !(p.overlap > 0.0 && p.overlap <= 1.0) {
            return Err(invalid(format!(
                "the option nms_iou_threshold is {}, which must be above 0 and at most 1",
                p.overlap
            )));
        }
        if (p.per_class && per_class == 0) || (!p.per_class && p.classes_per_detection == 0) || p.classes == 0
        {
            return Err(invalid(format!(
                "the options keep 0 classes or 0 boxes: num_classes {}, max_classes_per_detection {}, \
                 max_detections {}, detections_per_class {}",
                p.classes, p.classes_per_detection, p.detections, p.detections_per_class
            )));
        }
        Ok(p)
    }
}

/// An operand whose elements are read as real numbers.
#[derive(Clone, Copy)]
enum Reals {
    Float,
    UInt8 { scale: f32, zero_point: f32 },
    Int8 { scale: f32, zero_point: f32 },
}

impl Reals {
    fn new(what: &str, tensor: TensorView<'_>) -> Result<Self> {
        let quantization = || tensor.scale_zero_point().map(|(scale, zero)| (scale, zero as f32));
        match tensor.ty() {
            TensorType::Float32 => Ok(Reals::Float),
            TensorType::UInt8 => quantization().map(|(scale, zero_point)| Reals::UInt8 { scale, zero_point }),
            TensorType::Int8 => quantization().map(|(scale, zero_point)| Reals::Int8 { scale, zero_point }),
            _ => Err(unsupported_type(what, tensor)),
        }
    }

    /// Reads the elements of input `i` in order.
    fn read(self, cx: &mut InvokeContext<'_>, i: usize, target: &mut [f32], pace: &mut Pace) -> Result<()> {
        match self {
            Reals::Float => {
                pace.zip(1, cx.input::<f32>(i)?, target, |input, target| target.copy_from_slice(input))
            }
            Reals::UInt8 { scale, zero_point } => pace.zip(1, cx.input::<u8>(i)?, target, |input, target| {
                target.iter_mut().zip(input).for_each(|(o, v)| *o = (f32::from(*v) - zero_point) * scale);
            }),
            Reals::Int8 { scale, zero_point } => pace.zip(1, cx.input::<i8>(i)?, target, |input, target| {
                target.iter_mut().zip(input).for_each(|(o, v)| *o = (f32::from(*v) - zero_point) * scale);
            }),
        }
    }
}

struct PostProcess {
    params: Params,
    plan: Option<Plan>,
}

/// The state that `prepare` computes.
#[derive(Clone, Copy)]
struct Plan {
    boxes: usize,
    /// Numbers per encoded box; the first four are center and size.
    coordinates: usize,
    /// Scores per box, and the number of scores before the first class (1 if there is a background class).
    scores: usize,
    background: usize,
    inputs: [Reals; 3],
    /// Encoded boxes, scores, anchors, decoded boxes.
    reals: [Temporary; 4],
    /// Candidates of the suppression: their order (boxes, then classes), and which are still candidates.
    order: Temporary,
    active: Temporary,
    /// The best boxes of all classes.
    merged: Temporary,
    /// The scores that suppression compares.
    values: Temporary,
}

/// Inputs: boxes `[1, boxes, 4 or more]` encoded relative to anchors, scores `[1, boxes, classes or 1 + classes]`,
/// anchors `[boxes, 4]`. Outputs: corners `[1, n, 4]`, classes `[1, n]`, scores `[1, n]`, and the number of detections
/// `[1]`.
impl Kernel for PostProcess {
    fn prepare(&mut self, cx: &mut PrepareContext<'_>) -> Result<()> {
        cx.ensure_counts(3, 4)?;
        let p = self.params;
        let ([batch, boxes, coordinates], [scored, scored_boxes, scores]) =
            (dims(cx.input(0)?)?, dims(cx.input(1)?)?);
        let anchors = dims::<2>(cx.input(2)?)?;
        let background = scores.checked_sub(p.classes).filter(|&background| background <= 1);
        let fits =
            batch == 1 && scored == 1 && scored_boxes == boxes && coordinates >= 4 && anchors == [boxes, 4];
        let Some(background) = background.filter(|_| fits) else {
            return Err(invalid(format!(
                "boxes {}, scores {}, anchors {} and {} do not match",
                cx.input(0)?.shape(),
                cx.input(1)?.shape(),
                cx.input(2)?.shape(),
                counted(p.classes, "class")
            )));
        };
        for i in 0..4 {
            if cx.output(i)?.ty() != TensorType::Float32 {
                return Err(unsupported_type(&format!("output {i}"), cx.output(i)?));
            }
        }
        let inputs = [
            Reals::new("boxes", cx.input(0)?)?,
            Reals::new("scores", cx.input(1)?)?,
            Reals::new("anchors", cx.input(2)?)?,
        ];
        let overflow = || invalid("the sizes overflow");
        let places = p.detections.checked_mul(p.classes_per_detection.max(1)).ok_or_else(overflow)?;
        let elements = |a: usize, b: usize| a.checked_mul(b).ok_or_else(overflow);
        let kept = p.detections.checked_add(p.detections_per_class.min(p.detections)).ok_or_else(overflow)?;
        self.plan = Some(Plan {
            boxes,
            coordinates,
            scores,
            background,
            inputs,
            reals: [
                cx.temporary_of::<f32>(elements(boxes, coordinates)?)?,
                cx.temporary_of::<f32>(elements(boxes, scores)?)?,
                cx.temporary_of::<f32>(elements(boxes, 4)?)?,
                cx.temporary_of::<f32>(elements(boxes, 4)?)?,
            ],
            order: cx.temporary_of::<i32>(boxes.max(p.classes))?,
            active: cx.temporary_of::<u8>(boxes)?,
            merged: cx.temporary_of::<i32>(kept)?,
            values: cx.temporary_of::<f32>(boxes)?,
        });
        cx.set_output_shape(0, [1, places, 4])?;
        cx.set_output_shape(1, [1, places])?;
        cx.set_output_shape(2, [1, places])?;
        cx.set_output_shape(3, [1])
    }

    fn invoke(&mut self, cx: &mut InvokeContext<'_>) -> Result<()> {
        let (p, Some(plan)) = (self.params, self.plan) else {
            return Err(Error::State("the kernel was not prepared".into()));
        };
        let mut pace = Pace::new(cx);
        let boxes = self.decode(cx, &plan, &mut pace)?;
        let scores = &mut cx.temporary::<f32>(plan.reals[1])?[..plan.boxes * plan.scores];
        plan.inputs[1].read(cx, 1, scores, &mut pace)?;
        let order = cx.temporary::<i32>(plan.order)?;
        let active = &mut cx.temporary::<u8>(plan.active)?[..plan.boxes];
        let values = &mut cx.temporary::<f32>(plan.values)?[..plan.boxes];
        let score = |b: usize, class: usize| scores[b * plan.scores + plan.background + class];
        let mut out = Detections {
            corners: cx.output::<f32>(0)?.as_chunks_mut().0,
            classes: cx.output(1)?,
            scores: cx.output(2)?,
        };
        out.corners.fill([0.0; 4]);
        out.classes.fill(0.0);
        out.scores.fill(0.0);
        let count = if p.per_class {
            // An element of `merged` encodes class and box in one number; equal scores are ordered by this number.
            let (merged, mut len) = (cx.temporary::<i32>(plan.merged)?, 0);
            for class in 0..p.classes {
                for (first, values) in (0..).step_by(PIECE).zip(values.chunks_mut(PIECE)) {
                    pace.spend(values.len().saturating_mul(4))?;
                    (first..).zip(values).for_each(|(b, value)| *value = score(b, class));
                }
                let most = p.detections_per_class.min(p.detections);
                let kept = suppress(&p, boxes, values, most, order, active, &mut pace)?;
                for &b in &order[..kept] {
                    merged[len] = (class * plan.boxes) as i32 + b;
                    len += 1;
                }
                let of = |&i: &i32| score(i as usize % plan.boxes, i as usize / plan.boxes);
                let before = |a: &i32, b: &i32| of(b).total_cmp(&of(a)).then(a.cmp(b));
                sort_positions(&mut merged[..len], &before, &mut pace)?;
                len = len.min(p.detections);
            }
            for (place, &i) in merged[..len].iter().enumerate() {
                pace.spend(16)?;
                let (b, class) = (i as usize % plan.boxes, i as usize / plan.boxes);
                out.put(place, boxes[b], class, score(b, class));
            }
            len
        } else {
            for (b, value) in values.iter_mut().enumerate() {
                pace.spend(4)?;
                let of_box = &scores[b * plan.scores + plan.background..][..p.classes];
                let greatest = |max, piece: &[f32]| piece.iter().fold(max, |max: f32, &score| max.max(score));
                *value = pace.fold(1, of_box, f32::NEG_INFINITY, greatest)?;
            }
            let kept = suppress(&p, boxes, values, p.detections, order, active, &mut pace)?;
            // The boxes are copied, so that `order` can hold the order of a box's classes.
            let chosen = cx.temporary::<i32>(plan.merged)?;
            chosen[..kept].copy_from_slice(&order[..kept]);
            for (place, &b) in chosen[..kept].iter().enumerate() {
                let b = b as usize;
                let classes = &mut order[..p.classes];
                (0..).zip(classes.iter_mut()).for_each(|(class, o)| *o = class);
                let of = |&class: &i32| score(b, class as usize);
                let before = |x: &i32, y: &i32| of(y).total_cmp(&of(x)).then(x.cmp(y));
                sort_positions(classes, &before, &mut pace)?;
                for (i, &class) in classes.iter().take(p.classes_per_detection).enumerate() {
                    pace.spend(8)?;
                    out.put(place * p.classes_per_detection + i, boxes[b], class as usize, of(&class));
                }
            }
            kept
        };
        cx.output::<f32>(3)?.fill(count as f32);
        Ok(())
    }
}

impl PostProcess {
    /// Returns the corners `[y, x, y, x]` of the boxes. Corners that are not in order are an error.
    fn decode<'a>(&self, cx: &mut InvokeContext<'a>, plan: &Plan, pace: &mut Pace) -> Result<&'a [[f32; 4]]> {
        let encoded = &mut cx.temporary::<f32>(plan.reals[0])?[..plan.boxes * plan.coordinates];
        let anchors = &mut cx.temporary::<f32>(plan.reals[2])?[..plan.boxes * 4];
        let boxes = cx.temporary::<f32>(plan.reals[3])?.as_chunks_mut::<4>().0;
        plan.inputs[0].read(cx, 0, encoded, pace)?;
        plan.inputs[2].read(cx, 2, anchors, pace)?;
        let scales = self.params.scales.map(f64::from);
        let both = encoded.chunks_exact(plan.coordinates).zip(anchors.as_chunks::<4>().0);
        for ((encoded, anchor), corners) in both.zip(boxes.iter_mut()) {
            pace.spend(32)?;
            let [y, x, h, w] = [encoded[0], encoded[1], encoded[2], encoded[3]].map(f64::from);
            let [anchor_y, anchor_x, anchor_h, anchor_w] = anchor.map(f64::from);
            let center =
                [y / scales[0] * anchor_h + anchor_y, x / scales[1] * anchor_w + anchor_x].map(|v| v as f32);
            let half = [0.5 * (h / scales[2]).exp() * anchor_h, 0.5 * (w / scales[3]).exp() * anchor_w];
            let half = half.map(|v| v as f32);
            *corners = [center[0] - half[0], center[1] - half[1], center[0] + half[0], center[1] + half[1]];
            if corners[0] > corners[2] || corners[1] > corners[3] {
                return Err(Error::Kernel(format!("corners {corners:?} of a box are not in order")));
            }
        }
        Ok(&boxes[..plan.boxes])
    }
}

/// Moves the indices of the boxes to keep, by descending score, to the front of `order`; returns their number.
fn suppress(
    p: &Params,
    boxes: &[[f32; 4]],
    scores: &[f32],
    most: usize,
    order: &mut [i32],
    active: &mut [u8],
    pace: &mut Pace,
) -> Result<usize> {
    let mut len = 0;
    for (first, scores) in (0..).step_by(PIECE).zip(scores.chunks(PIECE)) {
        pace.spend(scores.len().saturating_mul(2))?;
        for (i, _) in (first..).zip(scores).filter(|(_, score)| **score >= p.score) {
            order[len] = i;
            len += 1;
        }
    }
    let score = |&i: &i32| scores[i as usize];
    let before = |a: &i32, b: &i32| score(b).total_cmp(&score(a)).then(a.cmp(b));
    sort_positions(&mut order[..len], &before, pace)?;
    active[..len].fill(1);
    let mut kept = 0;
    for i in 0..len {
        if kept >= most {
            break;
        }
        pace.spend(1)?;
        if active[i] == 0 {
            continue;
        }
        let chosen = order[i];
        pace.zip(8, &order[i + 1..len], &mut active[i + 1..len], |others, active| {
            for (&other, active) in others.iter().zip(active) {
                let shared = intersection_over_union(boxes[chosen as usize], boxes[other as usize]);
                *active &= u8::from(shared <= p.overlap);
            }
        })?;
        // Earlier boxes are decided already.
        order[kept] = chosen;
        kept += 1;
    }
    Ok(kept)
}

/// Intersection over union of two boxes with ordered corners; 0 if one has no area.
fn intersection_over_union(a: [f32; 4], b: [f32; 4]) -> f32 {
    let area = |[y1, x1, y2, x2]: [f32; 4]| (y2 - y1) * (x2 - x1);
    if area(a) <= 0.0 || area(b) <= 0.0 {
        return 0.0;
    }
    let height = (a[2].min(b[2]) - a[0].max(b[0])).max(0.0);
    let width = (a[3].min(b[3]) - a[1].max(b[1])).max(0.0);
    let shared = height * width;
    shared / (area(a) + area(b) - shared)
}

/// Output tensors.
struct Detections<'a> {
    corners: &'a mut [[f32; 4]],
    classes: &'a mut [f32],
    scores: &'a mut [f32],
}

impl Detections<'_> {
    fn put(&mut self, place: usize, corners: [f32; 4], class: usize, score: f32) {
        (self.corners[place], self.classes[place], self.scores[place]) = (corners, class as f32, score);
    }
}

#[cfg(test)]
mod tests {
    use delegraph_core::{Op, Params as NodeParams};

    use super::*;
    use crate::ReferenceOpResolver;
    use crate::testing::{T, run_custom};

    fn options(regular: bool, classes: i32, per_detection: i32) -> Vec<u8> {
        let mut builder = flexbuffers::Builder::default();
        let mut map = builder.start_map();
        map.push("max_detections", 3);
        map.push("max_classes_per_detection", per_detection);
        map.push("use_regular_nms", regular);
        map.push("nms_score_threshold", 0.1f32);
        map.push("nms_iou_threshold", 0.5f32);
        map.push("num_classes", classes);
        for scale in ["y_scale", "x_scale", "h_scale", "w_scale"] {
            map.push(scale, 10.0f32);
        }
        map.end_map();
        builder.view().to_vec()
    }

    /// Three boxes of size 2 at 1, 1.4 and 9; background and two classes.
    fn inputs() -> [Option<T>; 3] {
        let anchors = [1.0f32, 9.0, 9.0].map(|x| [1.0, x, 2.0, 2.0]).concat();
        let mut encoded = [0.0f32; 12];
        // The second box is encoded relative to its anchor: -38 / 10 of a width.
        encoded[5] = -38.0;
        let scores = [0.0f32, 0.9, 0.2, 0.0, 0.8, 0.3, 0.0, 0.3, 0.05];
        [
            Some(T::new(&[1, 3, 4], &encoded)),
            Some(T::new(&[1, 3, 3], &scores)),
            Some(T::new(&[3, 4], &anchors)),
        ]
    }

    fn run(options: &[u8], inputs: &[Option<T>], places: usize) -> Result<Vec<Vec<f32>>> {
        let none = |shape: &[usize]| T::new(shape, &vec![0.0f32; shape.iter().product()]);
        let outputs = [none(&[1, places, 4]), none(&[1, places]), none(&[1, places]), none(&[1])];
        let op = Op::custom("TFLite_Detection_PostProcess");
        let results =
            run_custom(ReferenceOpResolver::new(), op, 1, NodeParams::Custom, options, inputs, &outputs)?;
        let floats = |bytes: &[u8]| bytes.as_chunks().0.iter().map(|c| f32::from_le_bytes(*c)).collect();
        Ok(results.iter().map(|(_, bytes)| floats(bytes)).collect())
    }

    #[test]
    fn boxes_by_their_best_class() {
        let out = run(&options(false, 2, 2), &inputs(), 6).unwrap();
        assert_eq!(out[3], [2.0]);
        assert_eq!(out[2], [0.9, 0.2, 0.3, 0.05, 0.0, 0.0]);
        assert_eq!(out[1], [0.0, 1.0, 0.0, 1.0, 0.0, 0.0]);
        assert_eq!(
            out[0][..16],
            [[0.0, 0.0, 2.0, 2.0], [0.0, 0.0, 2.0, 2.0], [0.0, 8.0, 2.0, 10.0], [0.0, 8.0, 2.0, 10.0]]
                .concat()
        );
    }

    #[test]
    fn boxes_of_each_class() {
        let out = run(&options(true, 2, 1), &inputs(), 3).unwrap();
        assert_eq!(out[3], [3.0]);
        assert_eq!(out[2], [0.9, 0.3, 0.3]);
        assert_eq!(out[1], [0.0, 0.0, 1.0]);
        assert_eq!(out[0][4..8], [0.0, 8.0, 2.0, 10.0]);
    }

    #[test]
    fn operands_must_fit() {
        let e = run(&options(false, 4, 1), &inputs(), 3).unwrap_err().to_string();
        assert!(e.contains("scores [1, 3, 3], anchors [3, 4] and 4 classes do not match"), "{e}");
        let e = run(&[1, 2, 3], &inputs(), 3).unwrap_err().to_string();
        assert!(e.contains("3 bytes of options") && e.contains("FlexBuffer map"), "{e}");
    }
}
