import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;

class Careless {
    static void save(String settings) throws IOException {
        Files.writeString(Path.of("cfg.json"), settings);
    }

    public static void main(String[] arguments) throws IOException {
        save("{\"colour\": \"blue\"}");
        System.out.println("saved");
    }
}
