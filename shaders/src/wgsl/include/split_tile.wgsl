#if SPLIT
    // The workgroup's rows have parts of the same tile, which is one pixel: they are summed.
#for c in 0..WIDTH
    parts[(local.y * {{LANES}}u + local.x) * {{WIDTH}}u + {{c}}u] = sum_0_{{c}};
#endfor
    for (var half = {{ROWS / 2}}u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if local.y < half {
#for c in 0..WIDTH
            parts[(local.y * {{LANES}}u + local.x) * {{WIDTH}}u + {{c}}u] +=
                parts[((local.y + half) * {{LANES}}u + local.x) * {{WIDTH}}u + {{c}}u];
#endfor
        }
    }
    if local.y > 0u {
        return;
    }
#for c in 0..WIDTH
    sum_0_{{c}} = parts[local.x * {{WIDTH}}u + {{c}}u];
#endfor
#endif
