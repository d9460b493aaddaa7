// Transposes matrices in tiles of SIDE rows and columns. The words of a row are neighbours in the input, those of a
// column in the output. A tile goes through workgroup memory, so that neighbouring invocations load neighbours as well
// as store neighbours. The dimensions that number the matrices are listed from the innermost out.

struct Params {
    // Number of tiles of all matrices.
    count: u32,
    rows: u32,
    columns: u32,
    // Number of tiles that the rows, and the columns, of a matrix are divided into.
    row_tiles: u32,
    column_tiles: u32,
    // Distance of rows in the input, and of columns in the output. All strides are in units of UNIT words.
    src_stride: u32,
    dst_stride: u32,
#for d in 0..BATCHES
    extent_{{d}}: u32,
    src_stride_{{d}}: u32,
    dst_stride_{{d}}: u32,
#endfor
}

#if UNIT == 4
alias T = vec4<u32>;
#else
alias T = u32;
#endif

@group(0) @binding(0) var<storage, read> input: array<T>;
@group(0) @binding(1) var<storage, read_write> output: array<T>;
#include "params"

#include "divide"

// A row has one word of padding. Without it, all words of a column would be in one bank of the memory, which reads them
// one after the other.
var<workgroup> tile: array<u32, {{SIDE * (SIDE + 1)}}>;

@compute @workgroup_size({{LANES * LINES}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(num_workgroups) groups: vec3<u32>,
    @builtin(local_invocation_index) local: u32,
) {
    p = uniforms;
    let index = group.y * groups.x + group.x;
    // A folded dispatch may have surplus workgroups. The barrier below requires a condition that is uniform by WGSL's
    // rules; one on `p` is not.
    if index >= uniforms.count {
        return;
    }
    let above = divide(index, p.row_tiles);
    let matrix = divide(above, p.column_tiles);
    let first_row = (index - above * p.row_tiles) * {{SIDE}}u;
    let first_column = (above - matrix * p.column_tiles) * {{SIDE}}u;
    var src = 0u;
    var dst = 0u;
    var rest = matrix;
#for d in 0..BATCHES
    let outer_{{d}} = divide(rest, p.extent_{{d}});
    let digit_{{d}} = rest - outer_{{d}} * p.extent_{{d}};
    src += digit_{{d}} * p.src_stride_{{d}};
    dst += digit_{{d}} * p.dst_stride_{{d}};
    rest = outer_{{d}};
#endfor

    // LANES invocations move a line of the tile, UNIT words each: a row when they load, a column when they store.
    // A workgroup moves LINES of them at once.
    let lane = local % {{LANES}}u;
    let line = local / {{LANES}}u;
    // The last tiles exceed the matrix: their surplus loads words inside and stores nothing. Loads do not depend on
    // conditions, so that all of them can be in flight before the first is needed.
    let load = src + min(first_column / {{UNIT}}u + lane, p.columns / {{UNIT}}u - 1u);
#for i in 0..SIDE / LINES
    let v_{{i}} = input[load + min(first_row + line + {{i * LINES}}u, p.rows - 1u) * p.src_stride];
#endfor
    let in_row = line * {{SIDE + 1}}u + lane * {{UNIT}}u;
#for i in 0..SIDE / LINES
#if UNIT == 4
#for c in 0..4
    tile[in_row + {{i * LINES * (SIDE + 1) + c}}u] = v_{{i}}[{{c}}];
#endfor
#else
    tile[in_row + {{i * LINES * (SIDE + 1)}}u] = v_{{i}};
#endif
#endfor
    workgroupBarrier();

    let row = first_row / {{UNIT}}u + lane;
    let column = first_column + line;
    let in_column = lane * {{UNIT * (SIDE + 1)}}u + line;
    let store = dst + row + column * p.dst_stride;
    let is_row = row < p.rows / {{UNIT}}u;
#for i in 0..SIDE / LINES
    if is_row && column + {{i * LINES}}u < p.columns {
        let at = in_column + {{i * LINES}}u;
#if UNIT == 4
        let low = vec2(tile[at], tile[at + {{SIDE + 1}}u]);
        let v = vec4(low, tile[at + {{2 * (SIDE + 1)}}u], tile[at + {{3 * (SIDE + 1)}}u]);
#else
        let v = tile[at];
#endif
        output[store + {{i * LINES}}u * p.dst_stride] = v;
    }
#endfor
}
