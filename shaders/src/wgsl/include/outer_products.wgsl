        for (var k = 0u; k < {{4 * DEPTH}}u; k += {{UNROLLED}}u) {
#for n in 0..UNROLLED
            {
#for f in 0..OWN_CHANNELS
                let w_{{f}} = channels[k + {{n}}u][{{f}}][across];
#endfor
#for g in 0..OWN_PIXELS
                let v_{{g}} = pixels[k + {{n}}u][{{g}}][down];
#for j in 0..4
#for f in 0..OWN_CHANNELS
                sum_{{4 * g + j}}_{{f}} = fma(V(v_{{g}}[{{j}}]), w_{{f}}, sum_{{4 * g + j}}_{{f}});
#endfor
#endfor
#endfor
            }
#endfor
        }
