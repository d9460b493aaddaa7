// The index of this invocation in a dispatch that is folded into two dimensions.
fn item_index(group: vec3<u32>, groups: vec3<u32>, local: u32) -> u32 {
    return (group.y * groups.x + group.x) * {{WORKGROUP}}u + local;
}
