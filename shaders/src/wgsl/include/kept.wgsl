    // Offset of the elements that are combined into the result `kept`; the code below changes `kept`.
    var base = 0u;
#for d in 0..KEPT
#if d < KEPT - 1
    let outer_kept_{{d}} = divide(kept, p.kept_extent_{{d}});
#else
    let outer_kept_{{d}} = 0u;
#endif
    base += (kept - outer_kept_{{d}} * p.kept_extent_{{d}}) * p.kept_stride_{{d}};
    kept = outer_kept_{{d}};
#endfor
