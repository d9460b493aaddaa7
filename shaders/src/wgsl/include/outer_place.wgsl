    // SUBGROUP invocations form a block of LANES columns, so that those of a subgroup read few different vectors.
    let lane = local % {{SUBGROUP}}u;
    let across = local / {{SUBGROUP}}u % {{COLUMNS / LANES}}u * {{LANES}}u + lane % {{LANES}}u;
    let down = local / {{SUBGROUP}}u / {{COLUMNS / LANES}}u * {{SUBGROUP / LANES}}u + lane / {{LANES}}u;
    // What this invocation copies: vectors of four terms of four neighbouring pixels, and of four neighbouring channels.
#for v in 0..PIXEL_LOADS
    let pixel_term_{{v}} = (local + {{v * INVOCATIONS}}u) % {{DEPTH}}u;
    let pixel_four_{{v}} = (local + {{v * INVOCATIONS}}u) / {{DEPTH}}u;
#endfor
#for v in 0..FILTER_LOADS
    let channel_term_{{v}} = (local + {{v * INVOCATIONS}}u) / {{BLOCK_CHANNELS / 4}}u;
    let channel_four_{{v}} = (local + {{v * INVOCATIONS}}u) % {{BLOCK_CHANNELS / 4}}u;
#endfor
#for i in 0..4 * OWN_PIXELS
#for f in 0..OWN_CHANNELS
    var sum_{{i}}_{{f}} = V();
#endfor
#endfor
#for v in 0..PIXEL_LOADS
#for j in 0..4
    var pixel_{{v}}_{{j}} = V();
#endfor
#endfor
#for v in 0..FILTER_LOADS
#for j in 0..4
    var filter_{{v}}_{{j}} = V();
#endfor
#endfor
    // The first of the terms that are copied next.
    var next = 0u;
