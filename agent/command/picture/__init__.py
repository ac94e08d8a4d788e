"""Pictures of trees for people: one page of HTML with the tree as nested boxes, or the drawing alone as SVG."""
