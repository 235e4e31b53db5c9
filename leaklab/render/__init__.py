"""Writers: a document as text and as HTML, a record as JSON, DOT text as a picture. They know no question."""
