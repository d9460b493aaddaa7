// The matrix from positions in the crop around some landmarks to positions in the image that it is cut from.

struct Params {
    // Unit vector of the direction to which the line through two landmarks is rotated.
    goal_x: f32,
    goal_y: f32,
    left: u32,
    right: u32,
    // Size of the crop over that of its bounding box.
    scale_x: f32,
    scale_y: f32,
    // From positions of landmarks to those of the matrix.
    unit: f32,
    shift: f32,
    // Half of the crop, in positions of the matrix.
    half_x: f32,
    half_y: f32,
    // Factors of columns.
    column_x: f32,
    column_y: f32,
    // Factors of rows, and the offsets added to them at the end.
    row_x: f32,
    row_y: f32,
    end_x: f32,
    end_y: f32,
    // The landmarks of the crop, in fours.
    subset: array<vec4<u32>, {{FOURS}}>,
}

@group(0) @binding(0) var<storage, read> landmarks: array<f32>;
@group(0) @binding(1) var<storage, read_write> output: array<f32>;
@group(0) @binding({{UNIFORM}}) var<uniform> p: Params;

fn landmark(i: u32) -> vec2<f32> {
    return vec2(landmarks[i * 3u], landmarks[i * 3u + 1u]);
}

// Rotates around the origin by the angle with this cosine and sine.
fn turn(v: vec2<f32>, angle: vec2<f32>) -> vec2<f32> {
    return vec2(angle.x * v.x - angle.y * v.y, angle.y * v.x + angle.x * v.y);
}

@compute @workgroup_size(1)
fn main() {
    var line = landmark(p.right) - landmark(p.left);
#if UPRIGHT
    // Rotations are at most a right angle, since a line has no direction.
    line *= select(1.0, -1.0, line.x < 0.0);
#endif
    let length_of = sqrt(dot(line, line));
    let along = select(line / length_of, vec2(1.0, 0.0), length_of == 0.0);
    // Cosine and sine of the angle between the two directions.
    let angle = vec2(p.goal_x * along.x + p.goal_y * along.y, p.goal_y * along.x - p.goal_x * along.y);
    var least = turn(landmark(p.subset[0].x), angle);
    var greatest = least;
    for (var i = 0u; i < {{FOURS}}u; i++) {
        let four = p.subset[i];
#for n in 0..4
        let turned_{{n}} = turn(landmark(four[{{n}}]), angle);
        least = min(least, turned_{{n}});
        greatest = max(greatest, turned_{{n}});
#endfor
    }
    let back = vec2(angle.x, -angle.y);
    let center = turn((least + greatest) * 0.5, back) * p.unit + p.shift;
    let scale = (greatest - least) * vec2(p.scale_x, p.scale_y);
    let middle = vec2(p.half_x, p.half_y);
    let across = vec2(back.x * scale.x, -back.y * scale.y);
    let down = vec2(back.y * scale.x, back.x * scale.y);
    output[0] = p.row_x * across.x * p.column_x;
    output[1] = p.row_x * across.y * p.column_y;
    output[2] = 0.0;
    output[3] = p.row_x * (center.x - dot(across, middle)) + p.end_x;
    output[4] = p.row_y * down.x * p.column_x;
    output[5] = p.row_y * down.y * p.column_y;
    output[6] = 0.0;
    output[7] = p.row_y * (center.y - dot(down, middle)) + p.end_y;
#for n in 8..16
    output[{{n}}] = f32({{n == 10 || n == 15}});
#endfor
}
