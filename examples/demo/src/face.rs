//! Converts the face detector's raw outputs to faces.
//!
//! The detector has 896 anchors, points on two grids. Its outputs are a score per anchor and 16 numbers relative to the
//! anchor: the centre, width and height of a box, and six key points.

use image::{Rgb, RgbImage};

use crate::draw::{disc, frame};
use crate::photo::Fit;

/// Width and height of `face_detection_short_range`'s input.
pub(crate) const SIZE: u32 = 128;

/// Cells per side and anchors per cell of each grid, in the order of the outputs: strides 8, and 16 three times over.
const GRIDS: [(usize, usize); 2] = [(16, 2), (8, 6)];
const MIN_SCORE: f32 = 0.5;
/// Two boxes that overlap by more than this part of their union show the same face.
const SAME_FACE: f32 = 0.3;

/// Converts a byte of the photo to an input value.
pub(crate) fn value(byte: f32) -> f32 {
    byte / 127.5 - 1.0
}

/// A face in the model's square picture, whose sides are 1 long.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Face {
    /// From 0 to 1.
    pub(crate) score: f32,
    /// Upper left corner.
    pub(crate) min: [f32; 2],
    /// Lower right corner.
    pub(crate) max: [f32; 2],
    /// Right eye, left eye, nose tip, mouth, right ear, left ear; right and left are the person's.
    pub(crate) key_points: [[f32; 2]; 6],
}

/// Returns the faces, best first. `regressors` is `[1, 896, 16]` in pixels of the input, `scores` `[1, 896, 1]` before
/// the sigmoid.
pub(crate) fn find(regressors: &[f32], scores: &[f32]) -> Vec<Face> {
    let rows = regressors.as_chunks::<16>().0;
    let mut faces: Vec<Face> =
        anchors().zip(rows).zip(scores).map(|((anchor, row), score)| decode(anchor, row, *score)).collect();
    faces.retain(|face| face.score >= MIN_SCORE);
    faces.sort_by(|a, b| b.score.total_cmp(&a.score));
    let mut kept: Vec<Face> = Vec::new();
    for face in faces {
        if kept.iter().all(|better| overlap(better, &face) <= SAME_FACE) {
            kept.push(face);
        }
    }
    kept
}

/// Draws each face's box and key points on the photo.
pub(crate) fn draw(photo: &mut RgbImage, faces: &[Face], fit: Fit) {
    let thickness = (photo.width().max(photo.height()) as f32 / 128.0).max(2.0);
    for face in faces {
        frame(photo, fit.to_photo(face.min), fit.to_photo(face.max), thickness, Rgb([40, 220, 120]));
        for point in face.key_points {
            let centre = fit.to_photo(point);
            disc(photo, centre, thickness * 1.6, Rgb([255; 3]));
            disc(photo, centre, thickness, Rgb([230, 40, 90]));
        }
    }
}

/// The anchors' centres: rows from the top, cells from the left, several anchors in each.
fn anchors() -> impl Iterator<Item = [f32; 2]> {
    GRIDS.into_iter().flat_map(|(cells, per_cell)| {
        (0..cells * cells * per_cell).map(move |i| {
            let cell = i / per_cell;
            [cell % cells, cell / cells].map(|c| (c as f32 + 0.5) / cells as f32)
        })
    })
}

fn decode(anchor: [f32; 2], row: &[f32; 16], score: f32) -> Face {
    let point = |i: usize| [0, 1].map(|axis| anchor[axis] + row[i + axis] / SIZE as f32);
    let (centre, half) = (point(0), [2, 3].map(|i| row[i] / SIZE as f32 / 2.0));
    Face {
        score: 1.0 / (1.0 + (-score.clamp(-100.0, 100.0)).exp()),
        min: [centre[0] - half[0], centre[1] - half[1]],
        max: [centre[0] + half[0], centre[1] + half[1]],
        key_points: std::array::from_fn(|i| point(4 + 2 * i)),
    }
}

/// Intersection over union of two boxes.
fn overlap(a: &Face, b: &Face) -> f32 {
    let area = |min: [f32; 2], max: [f32; 2]| (max[0] - min[0]).max(0.0) * (max[1] - min[1]).max(0.0);
    let both = area([0, 1].map(|i| a.min[i].max(b.min[i])), [0, 1].map(|i| a.max[i].min(b.max[i])));
    let union = area(a.min, a.max) + area(b.min, b.max) - both;
    if union > 0.0 { both / union } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_are_on_two_grids() {
        let all: Vec<_> = anchors().collect();
        assert_eq!(all.len(), 896);
        assert_eq!(all[0], [0.03125, 0.03125]);
        assert_eq!(all[1], all[0]);
        assert_eq!(all[2], [0.09375, 0.03125]);
        assert_eq!(all[32], [0.03125, 0.09375]);
        assert_eq!(all[511], [0.96875, 0.96875]);
        assert_eq!(all[512], [0.0625, 0.0625]);
        assert_eq!(all[895], [0.9375, 0.9375]);
    }

    /// Outputs with no face but those of `(anchor, score, [dx, dy, width, height])`.
    fn outputs(faces: &[(usize, f32, [f32; 4])]) -> (Vec<f32>, Vec<f32>) {
        let (mut regressors, mut scores) = (vec![0.0; 896 * 16], vec![-50.0; 896]);
        for (anchor, score, numbers) in faces {
            scores[*anchor] = *score;
            regressors[anchor * 16..][..4].copy_from_slice(numbers);
        }
        (regressors, scores)
    }

    #[test]
    fn numbers_are_relative_to_the_anchor() {
        let (mut regressors, scores) = outputs(&[(512, 0.0, [8.0, -8.0, 32.0, 16.0])]);
        regressors[512 * 16 + 14..][..2].copy_from_slice(&[64.0, 32.0]);
        let faces = find(&regressors, &scores);
        assert_eq!(faces.len(), 1);
        assert_eq!(faces[0].score, 0.5);
        assert_eq!((faces[0].min, faces[0].max), ([0.0, -0.0625], [0.25, 0.0625]));
        assert_eq!(faces[0].key_points[5], [0.5625, 0.3125]);
    }

    #[test]
    fn one_face_is_found_once() {
        let near = [2.0, 0.0, 40.0, 40.0];
        let found = |faces: &[(usize, f32, [f32; 4])]| {
            let (regressors, scores) = outputs(faces);
            find(&regressors, &scores).iter().map(|f| f.score).collect::<Vec<_>>()
        };
        let sigmoid = |x: f32| 1.0 / (1.0 + (-x).exp());
        assert_eq!(found(&[(100, 1.0, near), (102, 3.0, near)]), [sigmoid(3.0)]);
        assert_eq!(found(&[(0, 1.0, near), (511, 3.0, near)]), [sigmoid(3.0), sigmoid(1.0)]);
        assert!(found(&[(0, -0.1, near)]).is_empty());
    }
}
